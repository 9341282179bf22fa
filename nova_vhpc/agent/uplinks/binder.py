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

"""When NICs are plugged into claimed uplinks, and when they are put back."""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

import libvirt
import tenacity

from nova_vhpc.agent.guests import guest
from nova_vhpc.agent.journal import store
from nova_vhpc.agent.libvirt import domain_xml, interfaces
from nova_vhpc.agent.uplinks import plugger
from nova_vhpc.placement import client

LOG = logging.getLogger(__name__)

PERIOD_S = 5.0

RETRY_SECONDS = 3.0
"""How long NICs that cannot be put back at the end are tried again."""

FIRST_RETRY_S = 0.1
LONGEST_RETRY_S = 0.5

Claims = Callable[[str], tuple[str, ...]]
"""Gives the bridges of the uplinks that a server has claimed here."""


class UplinkBinder:
    """Binds the uplinks of this host's servers, in a thread of its own.

    :param plugger: does it.
    :param guests: gives the opted-in servers.
    :param connection: gives libvirt's connection, or raises libvirtError.
    :param claims: see :data:`Claims`; raises PlacementError.
    :ivar left: whether :meth:`stop` could not put all NICs back.
    """

    def __init__(
        self,
        plugger: plugger.Plugger,
        guests: Callable[[], Mapping[str, guest.Guest]],
        connection: Callable[[], Any],
        claims: Claims,
    ) -> None:
        self._plugger = plugger
        self._guests = guests
        self._connection = connection
        self._claims = claims
        self._stop = threading.Event()
        # Held while NICs are moved: none must be once all are put back.
        self._moving = threading.Lock()
        self._thread: threading.Thread | None = None
        # In the run that each has had then; the next one is another object.
        self._bound: dict[str, guest.Guest] = {}
        self._problems: dict[str, str] = {}
        self.left = False

    def start(self) -> None:
        """Begin to bind."""
        self._stop.clear()
        self._thread = threading.Thread(
            target=self._run, name='vhpc-binding', daemon=True
        )
        self._thread.start()

    def stop(self, timeout_s: float = 0.5) -> None:
        """Put all NICs back and end.

        libvirtd may just be started anew, as both are by an upgrade: tried
        again for a while.

        :param timeout_s: how long to wait for a look in progress.
        """
        self._stop.set()
        if self._thread is None:
            return
        self._thread.join(timeout_s)
        self._thread = None
        tries = tenacity.Retrying(
            retry=tenacity.retry_if_result(bool),
            wait=tenacity.wait_exponential(
                multiplier=FIRST_RETRY_S, max=LONGEST_RETRY_S
            ),
            stop=tenacity.stop_after_delay(RETRY_SECONDS),
            retry_error_callback=_last,
        )
        failed: dict[str, str] = tries(self._put_all_back)
        self.left = bool(failed)
        for uuid, reason in failed.items():
            LOG.error('NICs of %s are not put back: %s', uuid, reason)

    def _put_all_back(self) -> dict[str, str]:
        """Try once.

        :returns: what went wrong, by uuid.
        """
        try:
            with self._moving:
                if not self._plugger.uuids():
                    return {}
                return self._plugger.undo_all(self._connection())
        except libvirt.libvirtError as error:
            return {'all': str(error)}

    def status(self) -> dict[str, Any]:
        """What is bound and what is not, in values that JSON takes."""
        return {
            'bound': [] if self._plugger.dry_run else sorted(self._bound),
            'problems': dict(self._problems),
        }

    def step(self) -> None:
        """Look at every server once."""
        guests = self._guests()
        left = self._plugger.uuids() - guests.keys()
        for uuid in self._bound.keys() - guests.keys():
            del self._bound[uuid]
        for uuid in self._problems.keys() - guests.keys() - left:
            del self._problems[uuid]
        for uuid in (*guests, *left):
            target = guests.get(uuid)
            try:
                if target is None:
                    self._release(uuid)
                else:
                    self._look(uuid, target)
            except (
                interfaces.UnsupportedError,
                store.JournalError,
                libvirt.libvirtError,
                client.PlacementError,
                ValueError,
            ) as error:
                text = str(error)
                if self._problems.get(uuid) != text:
                    name = uuid if target is None else target.name
                    LOG.warning('Uplinks of %s: %s', name, text)
                self._problems[uuid] = text
            else:
                self._problems.pop(uuid, None)

    def _release(self, uuid: str) -> None:
        """A VM that was bound is none of ours now, or not yet again."""
        try:
            domain = self._connection().lookupByUUIDString(uuid)
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
                raise
            self._plugger.forget(uuid)
            return
        if not domain_xml.parse(domain.XMLDesc(0)).ours:
            self._plugger.undo(domain)

    def _look(self, uuid: str, target: guest.Guest) -> None:
        if guest.Hold.MIGRATING in target.holds:
            # libvirt takes no writes now, and would keep us waiting.
            return
        if target.hands_off or target.info.specs.network in (None, 'exported'):
            # Tried again until it is done, also for one that has crashed, or
            # has asked for another network before.
            self._plugger.undo(target.domain)
            self._bound.pop(uuid, None)
            return
        if self._bound.get(uuid) is target:
            return
        bridges = self._claims(uuid)
        with self._moving:
            # Placement may have taken its time.
            if not bridges or target.hands_off or self._stop.is_set():
                return
            moved = self._plugger.bind(
                target.domain, bridges, target.info.specs.uplink_nic
            )
        self._bound[uuid] = target
        if moved:
            LOG.info(
                'VM %s: %d NICs are plugged into the claimed %s',
                target.name,
                moved,
                ', '.join(bridges),
            )

    def _run(self) -> None:
        while not self._stop.wait(PERIOD_S):
            try:
                self.step()
            except Exception:
                # A daemon's thread must outlive what nobody thought of.
                LOG.exception('Binding uplinks failed; trying again')


def _last(state: tenacity.RetryCallState) -> Any:
    """What the last of several tries came to."""
    return state.outcome.result() if state.outcome else None
