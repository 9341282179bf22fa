# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Decides when, and by which binder, claims are made to steer packets."""

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
from nova_vhpc.agent.uplinks import bound_guest, claims, steering
from nova_vhpc.agent.uplinks.binders import base
from nova_vhpc.placement import client

LOG = logging.getLogger(__name__)

PERIOD_S = 0.5
"""Time between two looks at the guests; each is bound within it."""

MIN_INTERVAL_S = 0.05
"""Shortest time between two looks that changes in Open vSwitch ask for."""

RETRY_S = 5.0
"""Time before a guest that could not be bound is tried again."""

OFF_RETRY_S = 60.0
"""The same while ``bind_uplinks`` is off: nothing waits for it."""

SETTLE_S = 5.0
"""Time after which a new guest is looked at while ``bind_uplinks`` is off: its
ports may not be wired yet."""

CLAIM_CHECK_S = 300.0
"""Longest time between two readings of a bound guest's claims from
Placement."""

UNCERTAIN_CHECK_S = 2.0
"""The same while the networks of its NICs may not be known yet."""

UNWIRED_S = 10.0
"""Time for which a port whose network is unknown is no problem: Neutron's
agent or ovn-controller wires it."""

UNCERTAIN_S = 60.0
"""After this time, decide with what is known of a guest's networks."""

RETRY_SECONDS = 3.0
"""Time for which :meth:`UplinkBinder.stop` retries to restore NICs."""

FIRST_RETRY_S = 0.1
LONGEST_RETRY_S = 0.5


class UplinkBinder:
    """Binds the NICs of this host's guests to their uplinks, in a thread.

    :param binders: binders in use.
    :param guests: returns the managed guests, by UUID.
    :param connection: returns libvirt's connection, or raises libvirtError.
    :param claims: the servers' claims on uplinks.
    :param steering: decides by which binder, or why by none.
    :param enabled: False: only report claims that steer no packet.
    :param dry_run: log what would be written, and write nothing.
    :ivar left: whether :meth:`stop` could not restore all NICs.
    """

    def __init__(
        self,
        binders: base.BinderSet,
        guests: Callable[[], Mapping[str, Guest]],
        connection: Callable[[], Any],
        claims: claims.UplinkClaims,
        steering: steering.Steering,
        *,
        enabled: bool = True,
        dry_run: bool = False,
    ) -> None:
        self._binders = binders
        self._guests = guests
        self._connection = connection
        self._claims = claims
        self._steering = steering
        self._enabled = enabled
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
        self._bound: dict[str, bound_guest.BoundGuest] = {}
        self._problems: dict[str, str] = {}
        self._unsteered: dict[str, dict[str, Any]] = {}
        # By UUID: the guest that was first seen, and when.
        self._seen: dict[str, tuple[Guest, float]] = {}
        # UUID and reason of what was logged.
        self._logged: set[tuple[str, str]] = set()
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
        """Return which claims steer packets and how, and why others do not.

        ``problems`` has a sentence for each guest; ``unsteered`` has more of
        those whose claims nothing can steer as the host is now.
        """
        bound = {} if self._dry_run else dict(self._bound)
        problems = {
            uuid: problem
            for uuid, one in bound.items()
            if (problem := one.problem)
        }
        return {
            'state': 'on' if self._enabled else 'off',
            'bound': sorted(u for u, one in bound.items() if one.is_steered),
            'uplinks': {
                uuid: {
                    'binder': one.steered_by.name,
                    'claimed': [f'{u.bridge}/{u.nic}' for u in one.uplinks],
                    'in_force': dict(one.in_force),
                }
                for uuid, one in bound.items()
            },
            'problems': problems | self._problems,
            'unsteered': dict(self._unsteered),
        }

    def claimed(self) -> dict[str, tuple[claims.ClaimedUplink, ...]]:
        """Return the uplinks that this host's guests claim, by UUID."""
        guests = self._guests()
        return {
            uuid: uplinks
            for uuid, uplinks in self._claims.last().items()
            if uplinks and uuid in guests
        }

    def steered_devices(self) -> dict[str, tuple[str, ...]]:
        """Return the taps whose packets take claimed uplinks, by UUID."""
        bound = {} if self._dry_run else self._bound.copy()
        return {
            uuid: one.steered_by.devices
            for uuid, one in bound.items()
            if one.is_steered
        }

    def reconcile(self) -> None:
        """Bind or restore the NICs of every guest, as its state demands."""
        guests = self._guests()
        recorded = self._recorded()
        unmanaged = recorded - guests.keys()
        for uuid in self._bound.keys() - guests.keys():
            del self._bound[uuid]
        for uuid in self._problems.keys() - guests.keys() - unmanaged:
            self._settle(uuid)
        self._logged = {one for one in self._logged if one[0] in guests}
        for uuid in self._seen.keys() - guests.keys():
            del self._seen[uuid]
        for uuid in self._waiting.keys() - guests.keys() - unmanaged:
            del self._waiting[uuid]
        for uuid in (*guests, *unmanaged):
            guest = guests.get(uuid)
            waiting_guest, retry_s = self._waiting.get(uuid, (None, 0.0))
            if guest is waiting_guest and time.monotonic() < retry_s:
                continue
            if guest is not None and not self._has_settled(uuid, guest):
                continue
            self._waiting.pop(uuid, None)
            problem: Exception | None = None
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
                # Reported below: in here the log would add the error's text.
                problem = error
            if problem is None:
                self._settle(uuid)
            elif (
                guest is not None
                and isinstance(problem, steering.UnknownNetworkError)
                and self._age_s(uuid) < UNWIRED_S
            ):
                self._waiting[uuid] = guest, time.monotonic() + PERIOD_S
            else:
                self._put_off(uuid, guest)
                self._report(uuid, guest, problem)

    def _has_settled(self, uuid: str, guest: Guest) -> bool:
        """Return whether to look at a guest yet."""
        seen_guest, seen_s = self._seen.get(uuid, (None, 0.0))
        if seen_guest is not guest:
            seen_s = time.monotonic()
            self._seen[uuid] = guest, seen_s
        return self._enabled or time.monotonic() - seen_s >= SETTLE_S

    def _age_s(self, uuid: str) -> float:
        """Return for how long a guest has been known, in seconds."""
        return time.monotonic() - self._seen[uuid][1]

    def _report(
        self, uuid: str, guest: Guest | None, error: Exception
    ) -> None:
        """Keep a problem for the status; log it once."""
        reason = str(error)
        name = uuid if guest is None else f'{guest.name} ({uuid})'
        self._problems[uuid] = reason
        self._unsteered.pop(uuid, None)
        text = 'Uplinks of VM %s: %s; will retry'
        if isinstance(error, interfaces.UnsupportedError):
            text = 'Claims of VM %s on uplinks steer no packets: %s'
            self._unsteered[uuid] = {
                'name': uuid if guest is None else guest.name,
                'cause': error.cause,
                'what': error.what,
                'remedy': error.remedy,
            }
        if (uuid, reason) not in self._logged:
            self._logged.add((uuid, reason))
            LOG.warning(text, name, reason)

    def _settle(self, uuid: str) -> None:
        """Forget a guest's problem."""
        self._problems.pop(uuid, None)
        self._unsteered.pop(uuid, None)

    def _put_off(self, uuid: str, guest: Guest | None) -> None:
        """Do not try a guest again for a while, unless it starts anew."""
        wait_s = RETRY_S if self._enabled else OFF_RETRY_S
        self._waiting[uuid] = guest, time.monotonic() + wait_s

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
            and bound.intact
        ):
            self._bound[uuid] = bound.look(self._steering)
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
                self._bind(uuid, guest, uplinks, is_recorded)

    def _bind(
        self,
        uuid: str,
        guest: Guest,
        uplinks: tuple[claims.ClaimedUplink, ...],
        is_recorded: bool,
    ) -> None:
        """Make a guest's claims steer its packets, if anything can.

        :param is_recorded: whether NICs were changed for it.
        :raises UnsupportedError: nothing can, or may.
        """
        former = self._bound.pop(uuid, None)
        claimant = claims.Claimant(
            guest.domain, uplinks, guest.info.specs.uplink_nic
        )
        carrier = self._carrier(claimant, is_recorded)
        is_certain = carrier.is_certain or self._age_s(uuid) >= UNCERTAIN_S
        if not self._enabled and not is_certain:
            # Nothing is urgent, and the reason may be another one.
            self._waiting[uuid] = guest, time.monotonic() + UNCERTAIN_CHECK_S
            return
        binder = carrier.binder
        names = ', '.join(f'{one.bridge}/{one.nic}' for one in uplinks)
        if binder is None:
            if former is None:
                LOG.info(
                    'VM %s: its packets take the claimed %s (by %s)',
                    guest.name,
                    names,
                    carrier.name,
                )
        elif self._dry_run or not self._enabled:
            for mac, target in binder.plan(claimant).items():
                if not self._enabled:
                    raise self._off(mac, binder.name)
                LOG.info(
                    'Dry run: VM %s: packets of NIC %s would be steered to '
                    'the claimed %s (%s: %s)',
                    guest.name,
                    mac,
                    names,
                    binder.name,
                    target,
                )
        elif changed := binder.bind(claimant):
            LOG.info(
                'VM %s: %d NICs are set to the claimed %s (by %s)',
                guest.name,
                changed,
                names,
                binder.name,
            )
        check_s = CLAIM_CHECK_S if is_certain else UNCERTAIN_CHECK_S
        now_s = time.monotonic()
        self._bound[uuid] = bound_guest.BoundGuest(
            guest,
            carrier,
            uplinks,
            # Spread, so that a restarted guest need not wait for all others.
            now_s + check_s * random.uniform(0.75, 1.0),
            is_certain,
            now_s if former is None else former.since_s,
        ).look(self._steering)

    def _carrier(
        self, claimant: claims.Claimant, is_recorded: bool
    ) -> steering.Carrier:
        """Return what is to steer a server's packets.

        What was changed while another one did is restored.

        :raises UnsupportedError: nothing can.
        """
        try:
            carrier = self._steering.carrier(claimant)
        except interfaces.UnsupportedError:
            if is_recorded:
                self._restore(claimant.uuid, claimant.domain)
            raise
        if is_recorded and (carrier.binder is None or not self._enabled):
            self._restore(claimant.uuid, claimant.domain)
        return carrier

    def _off(self, mac: str, name: str) -> interfaces.UnsupportedError:
        return interfaces.UnsupportedError(
            f'[vhpc_agent] bind_uplinks is off on host {self._steering.host}, '
            f'so that nothing steers NIC {mac}, as the binder {name} could',
            'Set bind_uplinks = true there, and restart nova-vhpc-agent; or '
            'use a flavor that claims no uplinks',
            cause='off',
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
