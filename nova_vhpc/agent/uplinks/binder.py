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


"""Decides when NICs are plugged into claimed uplinks, and when restored."""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

import libvirt
import tenacity

from nova_vhpc.agent import periodic
from nova_vhpc.agent.guests.guest import Guest, Hold
from nova_vhpc.agent.journal.record import JournalError
from nova_vhpc.agent.libvirt import domain_xml, interfaces
from nova_vhpc.agent.uplinks import claims, plugger
from nova_vhpc.placement import client

LOG = logging.getLogger(__name__)

PERIOD_S = 5.0

RETRY_SECONDS = 3.0
"""Time for which :meth:`UplinkBinder.stop` retries to restore NICs."""

FIRST_RETRY_S = 0.1
LONGEST_RETRY_S = 0.5


class UplinkBinder:
    """Plugs the NICs of this host's guests into their uplinks, in a thread.

    :param plugger: moves and restores NICs.
    :param guests: returns the managed guests, by UUID.
    :param connection: returns libvirt's connection, or raises libvirtError.
    :param claims: the servers' claims on uplinks.
    :ivar left: whether :meth:`stop` could not restore all NICs.
    """

    def __init__(
        self,
        plugger: plugger.Plugger,
        guests: Callable[[], Mapping[str, Guest]],
        connection: Callable[[], Any],
        claims: claims.UplinkClaims,
    ) -> None:
        self._plugger = plugger
        self._guests = guests
        self._connection = connection
        self._claims = claims
        self._thread = periodic.PeriodicThread(
            'vhpc-binding',
            self.reconcile,
            lambda: PERIOD_S,
            PERIOD_S,
            wait_first=True,
        )
        # Held while NICs are moved: none may be moved after stop() has
        # restored them all.
        self._moving = threading.Lock()
        # The value is the guest as it was bound: a restarted domain is
        # another Guest object, and its NICs must be moved again.
        self._bound: dict[str, Guest] = {}
        self._problems: dict[str, str] = {}
        self.left = False

    def start(self) -> None:
        """Begin to bind, after one period."""
        self._thread.start()

    def stop(self, timeout_s: float = 0.5) -> None:
        """Stop binding, and restore all NICs.

        Retries for a while, because libvirtd may just be restarting: a
        package upgrade restarts both.

        :param timeout_s: longest time to wait for a run in progress, in
            seconds.
        """
        if not self._thread.started:
            return
        self._thread.stop(timeout_s)
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
        try:
            with self._moving:
                if not self._plugger.uuids():
                    return {}
                return self._plugger.restore_all(self._connection())
        except libvirt.libvirtError as error:
            return {'all': str(error)}

    def status(self) -> dict[str, Any]:
        """Return which guests are bound, and why others are not."""
        return {
            'bound': [] if self._plugger.dry_run else sorted(self._bound),
            'problems': dict(self._problems),
        }

    def reconcile(self) -> None:
        """Bind or restore the NICs of every guest, as its state demands."""
        guests = self._guests()
        unmanaged = self._plugger.uuids() - guests.keys()
        for uuid in self._bound.keys() - guests.keys():
            del self._bound[uuid]
        for uuid in self._problems.keys() - guests.keys() - unmanaged:
            del self._problems[uuid]
        for uuid in (*guests, *unmanaged):
            guest = guests.get(uuid)
            try:
                if guest is None:
                    self._restore_unmanaged(uuid)
                else:
                    self._reconcile_guest(uuid, guest)
            except (
                interfaces.UnsupportedError,
                JournalError,
                libvirt.libvirtError,
                client.PlacementError,
                ValueError,
            ) as error:
                reason = str(error)
                if self._problems.get(uuid) != reason:
                    name = uuid if guest is None else guest.name
                    LOG.warning(
                        'Uplinks of VM %s: %s; will retry', name, reason
                    )
                self._problems[uuid] = reason
            else:
                self._problems.pop(uuid, None)

    def _restore_unmanaged(self, uuid: str) -> None:
        """Restore the NICs of a bound domain that is no guest of the agent.

        A domain with ``vhpc:`` extra specs is left alone: it will be adopted.
        """
        try:
            domain = self._connection().lookupByUUIDString(uuid)
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
                raise
            self._plugger.forget(uuid)
            return
        if not domain_xml.parse(domain.XMLDesc(0)).ours:
            self._plugger.restore(domain)

    def _reconcile_guest(self, uuid: str, guest: Guest) -> None:
        if Hold.MIGRATING in guest.holds:
            # libvirt accepts no writes now, and would block.
            return
        if guest.hands_off or guest.info.specs.network in (None, 'exported'):
            # Repeated in each period until it succeeds. The record may be of
            # an agent that crashed, or of an earlier flavor.
            self._plugger.restore(guest.domain)
            self._bound.pop(uuid, None)
            return
        if self._bound.get(uuid) is guest:
            return
        bridges = self._claims.bridges(uuid)
        with self._moving:
            # Checked again, since Placement's answer may have taken long.
            if not bridges or guest.hands_off or self._thread.stopping:
                return
            moved = self._plugger.bind(
                guest.domain, bridges, guest.info.specs.uplink_nic
            )
        self._bound[uuid] = guest
        if moved:
            LOG.info(
                'VM %s: %d NICs are plugged into the claimed %s',
                guest.name,
                moved,
                ', '.join(bridges),
            )


def _last_result(state: tenacity.RetryCallState) -> Any:
    """Return the result of the last attempt."""
    return state.outcome.result() if state.outcome else None
