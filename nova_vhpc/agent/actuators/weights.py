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
import pathlib
from collections.abc import Callable
from typing import Any

from nova_vhpc.agent.guests import guest
from nova_vhpc.agent.journal import store, written_values
from nova_vhpc.agent.libvirt import cgroup_weight, cputune
from nova_vhpc.linux import qemu_process

LOG = logging.getLogger(__name__)


class Weights:
    """Writes the weights of VMs; by libvirt where their files do not serve.

    :param options: ``[vhpc_agent]``.
    :param host: reads the QEMU processes.
    """

    def __init__(self, options: Any, host: qemu_process.Processes) -> None:
        self._by_file = options.window_weights == 'cgroup'
        self._host = host
        self._told = False

    def write(self, guest: guest.Guest, shares: int) -> None:
        """Set the weight of a running VM. With its lock held.

        :raises libvirt.libvirtError: it is refused.
        """
        problem = self._write_file(guest, shares) if self._by_file else ''
        if problem or not self._by_file:
            cputune.write_shares(guest.domain, shares)
        guest.note_written({cputune.SHARES: shares})
        if problem and not self._told:
            # What is so for one VM is mostly so for all.
            self._told = True
            LOG.info(
                'VM %s: libvirt writes its weight, which takes longer: %s',
                guest.name,
                problem,
            )

    def write_file(self, guest: guest.Guest, shares: int) -> bool:
        """Set the weight of a VM whose file is known, and never by libvirt.

        :returns: whether it was written.
        """
        if self._write_file(guest, shares):
            return False
        guest.note_written({cputune.SHARES: shares})
        return True

    def _write_file(self, guest: guest.Guest, shares: int) -> str:
        """Why it was not written; empty if it was."""
        if guest.weight is None:
            guest.weight = cgroup_weight.WeightFile(_find(guest, self._host))
        return guest.weight.write(guest.domain, shares)


def give_back(guest: guest.Guest, host: qemu_process.Processes) -> None:
    """Put a window's weight back without libvirt.

    For a VM that is being sent away: libvirt takes no writes for as long as
    that lasts, which may be hours, and a window that was open when it began
    would stay open so long. Never raises: nothing is worse than before if it
    cannot be done.
    """
    original = guest.original.parameters.get(cputune.SHARES)
    if (
        original is None
        or not guest.journalled
        or cputune.SHARES in guest.released
        or guest.echoes.shares_theirs is not None
    ):
        return
    file = _find(guest, host)
    # A window that began to write before the VM was held ends first.
    with guest.weighing:
        known = guest.echoes.shares_ours
        if not _put_back(file, original, known.__contains__, guest.name):
            return
        # What went into the file alone has never been in libvirt's XML.
        guest.unweighed = not guest.weighs_by_file
        guest.echoes.shares_ours.add(original)
        guest.note_written({cputune.SHARES: original})


def give_back_recorded(
    domain: Any, record: store.JournalRecord, host: qemu_process.Processes
) -> None:
    """The same for what an agent has left that was killed in a window.

    :raises libvirt.libvirtError: it cannot tell what is in force.
    """
    original = record.original.parameters.get(cputune.SHARES)
    if original is None or cputune.SHARES in record.released:
        return
    pid = host.find(record.uuid)
    if not pid:
        return
    (tid,) = host.vcpu_threads(pid, 1) or (pid,)
    file = host.weight_file(pid, tid)
    told = domain.schedulerParametersFlags(cputune.LIVE).get(cputune.SHARES)
    _put_back(
        file,
        original,
        # Nobody has proven that it is the file that libvirt means.
        lambda now: (
            now == told
            and written_values.may_be(record.written, cputune.SHARES, now)
        ),
        record.name,
    )


def _put_back(
    file: pathlib.Path | None,
    original: int,
    is_ours: Callable[[int], bool],
    name: str,
) -> bool:
    """Set the weight, if it is one of ours.

    :param is_ours: whether a weight is.
    :returns: whether it was set.
    """
    if file is None:
        return False
    try:
        # Whatever else is in it is not ours.
        now = int(file.read_text())
        if now == original or not is_ours(now):
            return False
        file.write_text(str(original))
    except (OSError, ValueError) as error:
        LOG.debug('VM %s: its weight stays: %r', name, error)
        return False
    return True


def settle(guest: guest.Guest) -> None:
    """Tell libvirt of it, now that the VM stays here.

    :raises libvirt.libvirtError: it is refused.
    """
    if not guest.unweighed:
        return
    # A window's write that waited for the migration comes first.
    with guest.lock:
        original = guest.original.parameters[cputune.SHARES]
        cputune.write_shares(guest.domain, original)
        guest.note_written({cputune.SHARES: original})
        guest.unweighed = False


def _find(
    guest: guest.Guest, host: qemu_process.Processes
) -> pathlib.Path | None:
    pid = host.find(guest.uuid)
    tid = guest.tids[0] if guest.tids else pid
    return host.weight_file(pid, tid) if pid else None
