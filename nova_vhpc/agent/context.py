# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The collaborators that most parts of the agent need."""

import dataclasses

from nova_vhpc.agent.guests import registry
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
    permission: registry.WritePermission
    connection: connection.Connection
    executor: executor.DomainExecutor
    journal: store.Journal
    processes: qemu_process.Processes
