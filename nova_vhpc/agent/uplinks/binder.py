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

"""Decides when, and by which binder, claims are made to steer packets."""

import dataclasses
import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import libvirt
import tenacity

from nova_vhpc.agent import periodic
from nova_vhpc.agent.guests.guest import Guest, Hold
from nova_vhpc.agent.journal.record import JournalError
from nova_vhpc.agent.libvirt import domain_xml, interfaces
from nova_vhpc.agent.ovsdb import connection as ovsdb_connection
from nova_vhpc.agent.uplinks import claims
from nova_vhpc.agent.uplinks.binders import base, binder_set
from nova_vhpc.placement import client

LOG = logging.getLogger(__name__)

PERIOD_S = 0.5
"""Time between two looks at the guests; each is bound within it."""

MIN_INTERVAL_S = 0.05
"""Shortest time between two looks that changes in Open vSwitch ask for."""

RETRY_S = 5.0
"""Time before a guest that could not be bound is tried again."""

CLAIM_CHECK_S = 300.0
"""Longest time between two readings of a bound guest's claims from
Placement."""

RETRY_SECONDS = 3.0
"""Time for which :meth:`UplinkBinder.stop` retries to restore NICs."""

FIRST_RETRY_S = 0.1
LONGEST_RETRY_S = 0.5


@dataclasses.dataclass(frozen=True, slots=True)
class _Bound:
    """A guest whose claims steer its packets.

    :ivar guest: the guest as it was bound: a restarted domain is another
        Guest object, and must be bound again.
    :ivar binder: the binder that did it.
    :ivar uplinks: the uplinks that it has claimed.
    :ivar check_s: monotonic time of the next reading of its claims.
    """

    guest: Guest
    binder: base.Binder
    uplinks: tuple[claims.ClaimedUplink, ...]
    check_s: float


class UplinkBinder:
    """Binds the NICs of this host's guests to their uplinks, in a thread.

    :param binders: binders in use.
    :param guests: returns the managed guests, by UUID.
    :param connection: returns libvirt's connection, or raises libvirtError.
    :param claims: the servers' claims on uplinks.
    :param dry_run: log what would be written, and write nothing.
    :ivar left: whether :meth:`stop` could not restore all NICs.
    """

    def __init__(
        self,
        binders: binder_set.BinderSet,
        guests: Callable[[], Mapping[str, Guest]],
        connection: Callable[[], Any],
        claims: claims.UplinkClaims,
        dry_run: bool = False,
    ) -> None:
        self._binders = binders
        self._guests = guests
        self._connection = connection
        self._claims = claims
        self._dry_run = dry_run
        self._thread = periodic.PeriodicThread(
            'vhpc-binding',
            self.reconcile,
            lambda: PERIOD_S,
            RETRY_S,
            min_interval_s=lambda: MIN_INTERVAL_S,
            wait_first=True,
        )
        # Held while NICs are changed: none may be changed after stop() has
        # restored them all.
        self._moving = threading.Lock()
        self._bound: dict[str, _Bound] = {}
        self._problems: dict[str, str] = {}
        # By UUID: the guest that was tried, and when it is tried again.
        self._waiting: dict[str, tuple[Guest | None, float]] = {}
        self.left = False

    def start(self) -> None:
        """Begin to bind, after one period."""
        if self._dry_run:
            self._warn_of_records()
        self._binders.start(self._thread.wake)
        self._thread.start()

    def stop(self, timeout_s: float = 0.5) -> None:
        """Stop binding, and restore all NICs.

        Retries for a while, because libvirtd or Open vSwitch may just be
        restarting: a package upgrade restarts both them and the agent.

        :param timeout_s: longest time to wait for a run in progress, in
            seconds.
        """
        if not self._thread.started:
            return
        self._thread.stop(timeout_s)
        if self._dry_run:
            return
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_result(bool),
            wait=tenacity.wait_exponential(
                multiplier=FIRST_RETRY_S, max=LONGEST_RETRY_S
            ),
            stop=tenacity.stop_after_delay(RETRY_SECONDS),
            retry_error_callback=_last_result,
        )
        failures: dict[str, str] = retrying(self._restore_all)
        self.left = bool(failures)
        for uuid, reason in failures.items():
            LOG.error('NICs of %s are not restored: %s', uuid, reason)

    def _restore_all(self) -> dict[str, str]:
        """Try once to restore all NICs.

        :returns: reasons for failures, by UUID.
        """
        with self._moving:
            return self._binders.restore_all(self._connection)

    def status(self) -> dict[str, Any]:
        """Return which guests are bound and how, and why others are not."""
        bound = {} if self._dry_run else dict(self._bound)
        problems = {
            uuid: problem
            for uuid, one in bound.items()
            if (problem := one.binder.problem(uuid))
        }
        return {
            'bound': sorted(bound.keys() - problems.keys()),
            'uplinks': {
                uuid: {
                    'binder': one.binder.name,
                    'claimed': [f'{u.bridge}/{u.nic}' for u in one.uplinks],
                    'in_force': dict(one.binder.in_force(uuid)),
                }
                for uuid, one in bound.items()
            },
            'problems': problems | self._problems,
        }

    def reconcile(self) -> None:
        """Bind or restore the NICs of every guest, as its state demands."""
        guests = self._guests()
        recorded = self._recorded()
        unmanaged = recorded - guests.keys()
        for uuid in self._bound.keys() - guests.keys():
            del self._bound[uuid]
        for uuid in self._problems.keys() - guests.keys() - unmanaged:
            del self._problems[uuid]
        for uuid in self._waiting.keys() - guests.keys() - unmanaged:
            del self._waiting[uuid]
        for uuid in (*guests, *unmanaged):
            guest = guests.get(uuid)
            waiting_guest, retry_s = self._waiting.get(uuid, (None, 0.0))
            if guest is waiting_guest and time.monotonic() < retry_s:
                continue
            self._waiting.pop(uuid, None)
            try:
                if guest is None:
                    self._put_off(uuid, guest)
                    self._restore_unmanaged(uuid)
                else:
                    self._reconcile_guest(uuid, guest, uuid in recorded)
            except (
                interfaces.UnsupportedError,
                JournalError,
                libvirt.libvirtError,
                ovsdb_connection.OvsdbError,
                client.PlacementError,
                ValueError,
            ) as error:
                self._put_off(uuid, guest)
                reason = str(error)
                if self._problems.get(uuid) != reason:
                    name = uuid if guest is None else guest.name
                    LOG.warning(
                        'Uplinks of VM %s: %s; will retry', name, reason
                    )
                self._problems[uuid] = reason
            else:
                self._problems.pop(uuid, None)

    def _put_off(self, uuid: str, guest: Guest | None) -> None:
        """Do not try a guest again for a while, unless it starts anew."""
        self._waiting[uuid] = guest, time.monotonic() + RETRY_S

    def _recorded(self) -> frozenset[str]:
        """Return the UUIDs of guests that NICs were changed for."""
        return frozenset(() if self._dry_run else self._binders.records())

    def _restore_unmanaged(self, uuid: str) -> None:
        """Restore the NICs of a bound domain that is no guest of the agent.

        A domain with ``vhpc:`` extra specs is left alone: it will be adopted.
        """
        try:
            domain = self._connection().lookupByUUIDString(uuid)
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
                raise
            self._binders.forget(uuid)
            return
        if not domain_xml.parse(domain.XMLDesc(0)).ours:
            self._restore(uuid, domain)

    def _restore(self, uuid: str, domain: Any) -> None:
        if not self._dry_run:
            self._binders.restore(uuid, domain)

    def _reconcile_guest(
        self, uuid: str, guest: Guest, is_recorded: bool
    ) -> None:
        """Bind or restore the NICs of a guest.

        :param is_recorded: whether NICs were changed for it.
        """
        if Hold.MIGRATING in guest.holds:
            # libvirt accepts no writes now, and would block.
            return
        if guest.hands_off or guest.info.specs.network in (None, 'exported'):
            # Repeated until it succeeds. The record may be of an agent that
            # crashed, or of an earlier flavor.
            if is_recorded:
                self._restore(uuid, guest.domain)
            self._bound.pop(uuid, None)
            return
        bound = self._bound.get(uuid)
        if bound is not None and bound.guest is not guest:
            bound = None
        if (
            bound is not None
            and time.monotonic() < bound.check_s
            and bound.binder.intact(uuid)
        ):
            return
        uplinks = self._claims.uplinks(uuid)
        with self._moving:
            # Checked again, since Placement's answer may have taken long.
            if uplinks is None or guest.hands_off or self._thread.stopping:
                self._put_off(uuid, guest)
            elif not uplinks:
                self._put_off(uuid, guest)
                self._restore(uuid, guest.domain)
                self._bound.pop(uuid, None)
            else:
                self._bind(uuid, guest, uplinks)

    def _bind(
        self,
        uuid: str,
        guest: Guest,
        uplinks: tuple[claims.ClaimedUplink, ...],
    ) -> None:
        """Bind a guest by the first binder that serves its NICs.

        :raises UnsupportedError: there is none, or it refuses.
        """
        self._bound.pop(uuid, None)
        nics = interfaces.read(guest.domain.XMLDesc(0))
        binder = self._binders.serving(uuid, nics, uplinks)
        uplink_nic = guest.info.specs.uplink_nic
        names = ', '.join(f'{one.bridge}/{one.nic}' for one in uplinks)
        if self._dry_run:
            for mac, target in binder.plan(
                guest.domain, uplinks, uplink_nic
            ).items():
                LOG.info(
                    'Dry run: VM %s: packets of NIC %s would be steered to '
                    'the claimed %s (%s: %s)',
                    guest.name,
                    mac,
                    names,
                    binder.name,
                    target,
                )
        elif changed := binder.bind(guest.domain, uplinks, uplink_nic):
            LOG.info(
                'VM %s: packets of %d NICs are steered to the claimed %s '
                '(by %s)',
                guest.name,
                changed,
                names,
                binder.name,
            )
        self._bound[uuid] = _Bound(
            guest,
            binder,
            uplinks,
            # Spread, so that a restarted guest need not wait for all others.
            time.monotonic() + CLAIM_CHECK_S * random.uniform(0.75, 1.0),
        )

    def _warn_of_records(self) -> None:
        for uuid, name in self._binders.records().items():
            LOG.warning(
                'NICs of VM %s may be as an agent that crashed has left them '
                '(%s), and a dry run does not restore them; stop this agent '
                'and run nova-vhpc-agent --restore',
                uuid,
                name,
            )


def _last_result(state: tenacity.RetryCallState) -> Any:
    """Return the result of the last attempt."""
    return state.outcome.result() if state.outcome else None
