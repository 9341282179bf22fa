# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""The collaborators that most parts of the agent need."""

import dataclasses

from nova_vhpc.agent.guests import registry, write_permission
from nova_vhpc.agent.journal import store
from nova_vhpc.agent.libvirt import connection, executor
from nova_vhpc.linux import qemu_process


@dataclasses.dataclass(frozen=True, slots=True)
class HostContext:
    """Collaborators of every part that works on this host's guests.

    Built once by the guest manager; holds no state of its own.

    :ivar guests: the managed guests of this host.
    :ivar permission: whether guests may be written now.
    :ivar connection: the connection to libvirt.
    :ivar executor: the threads that call libvirt, one call per domain.
    :ivar journal: the original settings on the disk.
    :ivar processes: the host's QEMU processes.
    """

    guests: registry.GuestRegistry
    permission: write_permission.WritePermission
    connection: connection.Connection
    executor: executor.DomainExecutor
    journal: store.Journal
    processes: qemu_process.Processes
