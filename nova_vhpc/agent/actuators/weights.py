# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Write a guest's weight directly into its control group.

At each border of a gang window two weights change. libvirt takes milliseconds
for one: it saves the domain's state to disk, and if systemd keeps the domain's
group, libvirt asks systemd, which writes the file. Writing the file directly
takes a tenth of a millisecond, does not wait for libvirtd and does not change
the domain's XML. libvirt reads the same file, so ``virsh schedinfo`` shows the
weight in force. The original weight is restored by libvirt.
"""

import contextlib
import logging
import pathlib
from collections.abc import Callable
from typing import Any

from nova_vhpc.agent.actuators import affinity
from nova_vhpc.agent.guests import guest
from nova_vhpc.agent.journal import written_values
from nova_vhpc.agent.journal.record import JournalRecord
from nova_vhpc.agent.libvirt import cgroup_weight, cputune
from nova_vhpc.control import model
from nova_vhpc.linux import cgroup, qemu_process

LOG = logging.getLogger(__name__)


class Weights:
    """Writes the weights of guests; by libvirt if the file cannot be used."""

    def __init__(
        self, options: Any, processes: qemu_process.Processes
    ) -> None:
        self._by_file = options.window_weights == 'cgroup'
        self._processes = processes
        self._v2 = cgroup.cpu_is_v2(pathlib.Path(options.cgroup_root))
        self._of_idle = cgroup_weight.SHARES_OF_IDLE[
            'cpu.weight' if self._v2 else 'cpu.shares'
        ]
        self._logged = False

    def seen(self, shares: int) -> tuple[int, ...]:
        """Return all ``cpu_shares`` that libvirt may report of a write.

        An idle group that ends to be idle has the kernel's default weight,
        until the next one is written.

        :param shares: ``cpu_shares``, or :data:`.model.IDLE_SHARES`.
        """
        if shares != model.IDLE_SHARES:
            return (shares,)
        default = (
            model.DEFAULT_SHARES_V2 if self._v2 else model.DEFAULT_SHARES_V1
        )
        return default, *self._of_idle

    def write(self, guest: guest.Guest, shares: int) -> None:
        """Set the weight of a running guest; the caller holds its lock.

        libvirt cannot make a group idle: without the file the guest gets the
        least weight that libvirt takes.

        :param shares: ``cpu_shares``, or :data:`.model.IDLE_SHARES`.
        :raises libvirt.libvirtError: libvirt refused it.
        """
        problem = ''
        if not self._by_file or (problem := self._write_file(guest, shares)):
            if shares == model.IDLE_SHARES:
                # The largest is one that libvirt takes.
                shares = max(self._of_idle)
            cputune.write_shares(guest.domain, shares)
            guest.note_written({cputune.SHARES: shares})
        if problem and not self._logged:
            # Logged once: the reason is mostly the same for all guests.
            self._logged = True
            LOG.info(
                'VM %s: its weight is written by libvirt and not to its file, '
                'which takes longer: %s',
                guest.name,
                problem,
            )

    def write_file(self, guest: guest.Guest, shares: int) -> bool:
        """Set the weight of a guest by its file, never by libvirt.

        :returns: whether the weight was written.
        """
        return not self._write_file(guest, shares)

    def _write_file(self, guest: guest.Guest, shares: int) -> str:
        """Return why the file was not written; empty if it was."""
        if guest.weight_file is None:
            guest.weight_file = cgroup_weight.WeightFile(
                _find(guest, self._processes)
            )
        file = guest.weight_file
        problem = file.write(guest.domain, shares)
        if not problem:
            guest.note_written({cputune.SHARES: file.in_force})
        return problem


def restore_by_file(
    guest: guest.Guest, processes: qemu_process.Processes
) -> None:
    """Restore a guest's original weight, and its affinity, without libvirt.

    For a guest that is being migrated away: libvirt accepts no writes during
    the migration, which may take hours, and a gang window that was open when
    it began would stay open. Never raises; without the file, the weight stays.
    """
    if not guest.journalled:
        return
    # A window that places the guest now ends first.
    with guest.state_lock, contextlib.suppress(OSError):
        affinity.release_guest(guest)
    original = guest.original.parameters.get(cputune.SHARES)
    if (
        original is None
        or cputune.SHARES in guest.unmanaged_fields
        or guest.event_history.external_shares is not None
    ):
        return
    file = _find(guest, processes)
    # A window that began its write before the guest was held ends first.
    with guest.state_lock:
        written = guest.event_history.written_shares
        if not _restore_file(file, original, written.__contains__, guest.name):
            return
        # A weight that was only written to the file is not in libvirt's XML.
        guest.weight_restored_by_file = not guest.uses_weight_file
        guest.event_history.written_shares.add(original)
        guest.note_written({cputune.SHARES: original})


def restore_recorded_by_file(
    domain: Any, record: JournalRecord, processes: qemu_process.Processes
) -> None:
    """Restore the original weight that a killed agent's record holds.

    :raises libvirt.libvirtError: libvirt cannot report the weight in force.
    """
    original = record.original.parameters.get(cputune.SHARES)
    if original is None or cputune.SHARES in record.unmanaged_fields:
        return
    pid = processes.find(record.uuid, domain.ID())
    if not pid:
        return
    (tid,) = processes.vcpu_threads(pid, (0,)) or (pid,)
    file = processes.weight_file(pid, tid)
    parameters = domain.schedulerParametersFlags(cputune.LIVE)
    in_force = parameters.get(cputune.SHARES)
    _restore_file(
        file,
        original,
        # Only a weight that libvirt reports, too, is known to be in force: it
        # is not proven that libvirt reads this file.
        lambda now: (
            now == in_force
            and written_values.may_be_written(
                record.written, cputune.SHARES, now
            )
        ),
        record.name,
    )


def _restore_file(
    file: pathlib.Path | None,
    original: int,
    is_ours: Callable[[int], bool],
    name: str,
) -> bool:
    """Restore the weight if the one in force is the agent's.

    :param is_ours: returns whether the agent may have written a weight.
    :returns: whether the weight was restored.
    """
    if file is None:
        return False
    try:
        # Another value is an external change and stays.
        now = cgroup_weight.read(file)
        if now == original or not is_ours(now):
            return False
        cgroup_weight.put(file, original)
    except (OSError, ValueError) as error:
        LOG.debug(
            'VM %s: cannot restore its weight by the file: %r', name, error
        )
        return False
    return True


def end_idle(
    uuid: str,
    domain_id: int,
    written: written_values.WrittenValues,
    processes: qemu_process.Processes,
) -> None:
    """Make a guest's group no longer idle if the agent may have made it so.

    Else libvirt cannot write the original weight. Never raises.

    :param written: values that may have been written.
    """
    pid = processes.find(uuid, domain_id)
    if not pid:
        return
    (tid,) = processes.vcpu_threads(pid, (0,)) or (pid,)
    file = processes.weight_file(pid, tid)
    if file is None:
        return
    try:
        if any(
            written_values.may_be_written(written, cputune.SHARES, shares)
            for shares in cgroup_weight.SHARES_OF_IDLE[file.name]
        ):
            cgroup_weight.end_idle(file)
    except OSError as error:
        LOG.warning('%s: the group stays idle: %r', file.parent, error)


def restore_by_libvirt(guest: guest.Guest) -> None:
    """Write a weight that :func:`restore_by_file` restored to libvirt, too.

    For a guest whose migration failed, so that it stays on this host.

    :raises libvirt.libvirtError: libvirt refused it.
    """
    if not guest.weight_restored_by_file:
        return
    # A window's write that waited for the migration ends first.
    with guest.lock:
        original = guest.original.parameters[cputune.SHARES]
        cputune.write_shares(guest.domain, original)
        guest.note_written({cputune.SHARES: original})
        guest.weight_restored_by_file = False


def _find(
    guest: guest.Guest, processes: qemu_process.Processes
) -> pathlib.Path | None:
    pid = processes.find(guest.uuid, guest.domain_id)
    tid = guest.tids[0] if guest.tids else pid
    return processes.weight_file(pid, tid) if pid else None
