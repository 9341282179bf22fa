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

"""Write a VM's weight where libvirt keeps it: in its control group.

At each border of a gang window two weights change. libvirt takes milliseconds
for one: it saves the VM's state to a disk, and where systemd keeps the VM it
asks systemd, which writes a file. The group's own file takes a tenth of one,
waits for no libvirtd, and leaves the VM's XML as it was. libvirt reads the
same file, so ``virsh schedinfo`` shows what is in force; it also puts back.
"""

import logging
from typing import Any

from nova_vhpc.agent import cputune, guest, processes, weight_file

LOG = logging.getLogger(__name__)


class Weights:
    """Writes the weights of VMs; by libvirt where their files do not serve.

    :param options: ``[vhpc_agent]``.
    :param host: reads the QEMU processes.
    """

    def __init__(self, options: Any, host: processes.Processes) -> None:
        self._by_file = options.window_weights == 'cgroup'
        self._host = host
        self._told = False

    def write(self, target: guest.Guest, shares: int) -> None:
        """Set the weight of a running VM. With its lock held.

        :raises libvirt.libvirtError: it is refused.
        """
        problem = self._write_file(target, shares) if self._by_file else ''
        if problem or not self._by_file:
            cputune.write_shares(target.domain, shares)
        target.note_written({cputune.SHARES: shares})
        if problem and not self._told:
            # What is so for one VM is mostly so for all.
            self._told = True
            LOG.info(
                'VM %s: libvirt writes its weight, which takes longer: %s',
                target.name,
                problem,
            )

    def _write_file(self, target: guest.Guest, shares: int) -> str:
        """Why it was not written; empty if it was."""
        if target.weight is None:
            pid = self._host.find(target.uuid)
            tid = target.tids[0] if target.tids else pid
            path = self._host.weight_file(pid, tid) if pid else None
            target.weight = weight_file.WeightFile(path)
        return target.weight.write(target.domain, shares)


def give_back(target: guest.Guest) -> None:
    """Take a window's weight back without libvirt.

    For a VM that is being sent away: libvirt takes no writes then, and it
    might have been left with next to nothing.
    """
    with target.lock:
        shares = target.original.parameters.get(cputune.SHARES)
        if (
            shares is not None
            and target.journalled
            and target.weight is not None
            and target.weight.proven
            and cputune.SHARES not in target.released
            and target.shares_theirs is None
            and not target.weight.write(target.domain, shares)
        ):
            target.note_written({cputune.SHARES: shares})
