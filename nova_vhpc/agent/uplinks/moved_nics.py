# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""NICs that an agent of an earlier version has left on other Linux bridges.

The binder ``linux_bridge`` moved guests' NICs to the bridges of their uplinks,
and journalled the original bridge. There is no such binder any more, but a
guest that ran through the upgrade may still have such a NIC.
"""

import dataclasses
import logging
import pathlib
from collections.abc import Mapping
from typing import Any

from nova_vhpc.agent.journal import record, store
from nova_vhpc.linux import qemu_process

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class MovedNics:
    """NICs that an agent moved in one run of a domain.

    :ivar uuid: UUID of the domain.
    :ivar identity: the run of the domain.
    :ivar moved: bridge before and after the move, by MAC address.
    """

    uuid: str
    identity: qemu_process.Identity
    moved: Mapping[str, tuple[str, str]]

    def to_json(self) -> str:
        """Return the record as a versioned JSON document."""
        return record.encode(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str, source: str) -> 'MovedNics':
        """Parse the output of :meth:`to_json`.

        :param source: where the text was read, for the error message.
        :raises NewerVersion: a newer agent wrote the record.
        :raises JournalError: the text is damaged, altered or no record.
        """
        with record.reading(text, source) as data:
            return cls(
                str(data['uuid']),
                qemu_process.Identity.from_dict(data['identity']),
                {m: (str(b), str(a)) for m, (b, a) in data['moved'].items()},
            )

    def __str__(self) -> str:
        return ', '.join(
            f'NIC {mac} was moved from Linux bridge {before} to {after}'
            for mac, (before, after) in self.moved.items()
        )


class MovedNicsJournal(store.RecordFiles[MovedNics]):
    """What an agent of an earlier version has journalled.

    :param state_path: ``[vhpc_agent]state_path``.
    :param processes: the QEMU processes of this host.
    """

    def __init__(
        self, state_path: str, processes: qemu_process.Processes
    ) -> None:
        super().__init__(
            pathlib.Path(state_path, 'bindings'),
            MovedNics.from_json,
            lambda nics: f'the NICs of {nics.uuid}',
            'they are not moved',
        )
        self._processes = processes

    def problems(self) -> dict[str, str]:
        """Return what is left to be restored by hand, by UUID of the guest.

        The record of a domain that does not run, or that was started anew, is
        removed: libvirt has plugged its NICs as Nova defined them.
        """
        return {
            uuid: problem
            for uuid in self.uuids()
            if (problem := self._problem(uuid))
        }

    def _problem(self, uuid: str) -> str:
        try:
            moved = self.load(uuid)
            if moved is None:
                return ''
            if not self._runs(moved):
                self.remove(uuid)
                LOG.info(
                    'VM %s was started anew since: %s; the record is removed',
                    uuid,
                    moved,
                )
                return ''
            what = str(moved)
        except record.JournalError as error:
            if not self._processes.find(uuid):
                aside = self.set_aside(uuid)
                LOG.info('VM %s does not run: %s is kept', uuid, aside)
                return ''
            what = f'NICs were moved between Linux bridges ({error})'
        return (
            f'{what}, by an agent of an earlier version; this one cannot move '
            'it back. Stop and start the server, which plugs it as Nova '
            'defined; or move it by "virsh update-device --live", and remove '
            f'{self.path / uuid}{store.SUFFIX}'
        )

    def _runs(self, moved: MovedNics) -> bool:
        pid = self._processes.find(moved.uuid)
        if not pid:
            return False
        identity = qemu_process.Identity(
            self._processes.boot_id(),
            pid,
            self._processes.start_ticks(pid),
            # Not known without libvirt, and counts only without a process.
            moved.identity.domain_id,
        )
        return moved.identity.same_run(identity)


def make_journal(conf: Any) -> MovedNicsJournal:
    """Return the journal of this host."""
    return MovedNicsJournal(
        conf.vhpc_agent.state_path, qemu_process.make_processes(conf)
    )
