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

"""libvirt's events: which domain is to be looked at."""

import logging
from collections.abc import Callable
from typing import Any

import libvirt

from nova_vhpc.agent import cputune, guest, mark, roster

LOG = logging.getLogger(__name__)

TUNABLE_NAMES = {
    'cputune.vcpu_period': cputune.PERIOD,
    'cputune.vcpu_quota': cputune.QUOTA,
    'cputune.cpu_shares': cputune.SHARES,
}


class Events:
    """Listens on a connection. Called in libvirt's event thread.

    :param vms: knows what we wrote ourselves.
    :param look: has a domain looked at; returns at once.
    """

    def __init__(
        self, vms: roster.Roster, look: Callable[[str], None]
    ) -> None:
        self._roster = vms
        self._look = look

    def listen(self, conn: Any) -> None:
        """Register for all that concerns us.

        :raises libvirt.libvirtError: the connection is lost.
        """
        conn.domainEventRegisterAny(
            None,
            libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE,
            self._on_lifecycle,
            None,
        )
        for name, callback in (
            ('VIR_DOMAIN_EVENT_ID_TUNABLE', self._on_tunable),
            ('VIR_DOMAIN_EVENT_ID_METADATA_CHANGE', self._on_metadata),
            ('VIR_DOMAIN_EVENT_ID_JOB_COMPLETED', self._on_other),
            ('VIR_DOMAIN_EVENT_ID_DEVICE_ADDED', self._on_other),
            ('VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED', self._on_other),
            ('VIR_DOMAIN_EVENT_ID_MIGRATION_ITERATION', self._on_other),
        ):
            try:
                conn.domainEventRegisterAny(
                    None, getattr(libvirt, name), callback, None
                )
            except (AttributeError, libvirt.libvirtError) as error:
                LOG.debug('libvirt has no %s: %s', name, error)

    def _on_lifecycle(
        self, conn: Any, domain: Any, event: int, detail: int, opaque: Any
    ) -> None:
        self._look(domain.UUIDString())

    def _on_metadata(
        self, conn: Any, domain: Any, kind: int, uri: str, opaque: Any
    ) -> None:
        if uri != mark.URI:
            self._look(domain.UUIDString())

    def _on_other(
        self, conn: Any, domain: Any, detail: Any, opaque: Any
    ) -> None:
        self._look(domain.UUIDString())

    def _on_tunable(
        self, conn: Any, domain: Any, values: dict[str, Any], opaque: Any
    ) -> None:
        """Our own writes come back, too; look only at what is not ours."""
        target = self._roster.guests.get(domain.UUIDString())
        if target is None:
            return
        expected = target.expected.parameters
        foreign = False
        for name, value in values.items():
            known = TUNABLE_NAMES.get(name)
            if known is not None and cputune.same(
                known, expected.get(known), value
            ):
                continue
            if known == cputune.SHARES:
                if value not in target.echoes.shares_ours:
                    self._note_shares(target, domain, value)
                elif target.journalled:
                    continue
            elif known is not None:
                self._note_bandwidth(target, domain, known, value)
            foreign = True
        if foreign:
            self._look(target.uuid)

    @staticmethod
    def _note_shares(target: guest.Guest, domain: Any, value: int) -> None:
        """Keep what a window may have written over before anybody looks."""
        if (
            cputune.SHARES not in target.released
            # Of an earlier run it says nothing about this one.
            and domain.ID() == target.domain_id
        ):
            target.echoes.shares_theirs = value

    @staticmethod
    def _note_bandwidth(
        target: guest.Guest, domain: Any, name: str, value: int
    ) -> None:
        """Keep what a write of ours may have come just after."""
        if (
            name not in target.released
            and not target.echoes.wrote(name, value)
            and not cputune.same(
                name, target.original.parameters.get(name), value
            )
            and domain.ID() == target.domain_id
        ):
            # Never changed in place: whoever looks at them has his own.
            target.echoes.bandwidth_theirs = {
                **target.echoes.bandwidth_theirs,
                name: value,
            }
