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

"""Changes that somebody else made to a VM of ours."""

import contextlib
import dataclasses
import logging
from typing import Any, Protocol

from nova_vhpc.agent.context import HostContext
from nova_vhpc.agent.external_changes import (
    cpu_hotplug,
    detection,
    misdirected_writes,
)
from nova_vhpc.agent.guests.guest import Guest, Hold
from nova_vhpc.agent.journal import domain_metadata, store, written_values
from nova_vhpc.agent.libvirt import cputune

LOG = logging.getLogger(__name__)

RESUME_SECONDS = 5.0
"""How long a resumed guest waits for another call about it."""


class ShareObserver(Protocol):
    """Plays gang windows, and so knows a guest's ``cpu_shares`` by itself."""

    def forget(self, uuid: str) -> None:
        """Write a guest's ``cpu_shares`` again, whatever is in force."""


class ExternalChangePolicy:
    """Detects external changes, and respects or overrides them.

    :param context: the agent's collaborators.
    :param options: ``[vhpc_agent]``, of which ``foreign_changes`` decides.
    :param cpu_hotplug: follows CPUs of the host that come or go.
    :param misdirected: reverts what was written to another run.
    :param share_observer: plays the gang windows.
    :ivar count: number of values that were changed externally.
    :ivar handed_back: number of servers that were handed back.
    """

    def __init__(
        self,
        context: HostContext,
        options: Any,
        cpu_hotplug: cpu_hotplug.CpuHotplug,
        misdirected: misdirected_writes.MisdirectedWrites,
        share_observer: ShareObserver,
    ) -> None:
        self._context = context
        self._options = options
        self._cpu_hotplug = cpu_hotplug
        self._misdirected = misdirected
        self._share_observer = share_observer
        self.count = 0
        self.handed_back = 0

    def check(self, guest: Guest) -> None:
        """Find external changes of a guest, and apply the option.

        If the guest is ``external`` and ``journalled`` afterwards, the caller
        must restore it.

        :raises RunChangedError: the domain was started anew meanwhile.
        """
        with guest.lock:
            if self._is_as_expected(guest):
                return
            # No window may write between the read and what follows from it.
            guest.stop_free_weights()
            history = guest.event_history
            shares, external = history.external_shares, history.external
            self._check(guest, shares)
            # Otherwise another event has come, and with it another check.
            if history.external_shares == shares:
                history.external_shares = None
            if history.external is external:
                history.external = {}

    def _is_as_expected(self, guest: Guest) -> bool:
        """Whether there is nothing to do, while windows go on.

        Nearly always; whatever else it may be is looked at without them.
        """
        if (
            not guest.free_weights
            or guest.event_history.external_shares is not None
            or guest.event_history.external
            or guest.uncertain
            or guest.external
        ):
            return False
        old, writes = guest.expected, guest.writes
        now = cputune.read(guest.domain, old)
        return (
            self._context.connection.runs(guest.uuid, guest.domain_id)
            and len(now.vcpupins) == len(guest.original.vcpupins)
            and not self._cpu_hotplug.came(guest)
            and not detection.found(guest, old, now)
            and (
                now.parameters.get(cputune.SHARES)
                == old.parameters.get(cputune.SHARES)
                # Which of the windows' values was read cannot be told then.
                or guest.writes != writes
            )
        )

    def _check(self, guest: Guest, shares: int | None) -> None:
        """Compare what is in force with what is known; the lock is held.

        :param shares: external ``cpu_shares`` that an event reported, or None.
            A window may have written over them since.
        """
        old = guest.expected
        now = cputune.read(guest.domain, old if guest.journalled else None)
        if not self._context.connection.runs(guest.uuid, guest.domain_id):
            # Restarted since it was looked up: that is what changed it.
            return
        self._cpu_hotplug.follow(guest, now)
        old = guest.expected
        if not guest.journalled:
            if guest.external and self._was_overwritten(guest, now, shares):
                return
            # We have not written: these are its settings, whoever made them.
            changed = detection.found(guest, old, now)
            guest.uncertain = False
            guest.set_expected(now)
            guest.original = now
            guest.original_tune = guest.in_force
            if changed:
                guest.allow(now.cpus)
            if guest.settled and not guest.floats:
                # What the copy says of its pins is not so any more.
                domain_metadata.remove(guest.domain)
                guest.settled = False
            return
        if len(now.vcpupins) != len(guest.original.vcpupins):
            self._count_vcpus(guest, now)
        changed = detection.found_or_told(guest, old, now, shares)
        guest.uncertain = False
        guest.set_expected(now)
        if changed:
            self._apply_option(guest, changed, shares)
        elif guest.in_force.shares != old.parameters.get(cputune.SHARES):
            # No external change, but not what the window player knows.
            self._share_observer.forget(guest.uuid)

    def _was_overwritten(
        self, guest: Guest, now: cputune.Cputune, shares: int | None
    ) -> bool:
        """Whether the hand-back itself has replaced another external value.

        Values are mostly set one after the other, as by several calls of
        ``virsh vcpupin``. One that was set just before its original was
        written is known by its event only; the guest is handed back again.
        """
        values = detection.overwritten(guest, now, shares)
        changed = [name for name in values if name not in guest.external]
        if changed:
            guest.set_expected(now)
            guest.original = now
            guest.journalled = True
            self._hand_back(guest, changed, shares)
        return bool(changed)

    def _count_vcpus(self, guest: Guest, now: cputune.Cputune) -> None:
        """vCPUs were plugged in or out of a VM that we have written to.

        New ones are written once they are expected, so as they are now is how
        they were before us.
        """
        known = guest.original.vcpupins
        if len(now.vcpupins) > len(known):
            grown = dataclasses.replace(
                guest.original,
                vcpupins=known + now.vcpupins[len(known) :],
            )
            record = dataclasses.replace(guest.record(), original=grown)
            self._context.journal.save(record)
            guest.original = grown
            domain_metadata.put(guest.domain, record)
        guest.original_tune = guest.original.tune(guest.info.vcpus)

    def settle(self, guest: Guest) -> None:
        """Respect what was not checked yet, before a guest is restored.

        The caller holds the guest's lock.
        """
        if self._options.foreign_changes == 'override':
            return
        now = cputune.read(guest.domain, guest.expected)
        self._cpu_hotplug.follow(guest, now, stays=False)
        shares = guest.event_history.external_shares
        changed = detection.found_or_told(guest, guest.expected, now, shares)
        guest.set_expected(now)
        if changed:
            self._hand_back(guest, changed, shares)

    def _apply_option(
        self, guest: Guest, changed: list[str], shares: int | None
    ) -> None:
        """Override the changed values, or hand the guest back.

        :param changed: names of values that were changed externally.
        :param shares: external ``cpu_shares`` that an event reported, or None.
        """
        if self._options.foreign_changes != 'override':
            self._hand_back(guest, changed, shares)
            return
        self.count += len(changed)
        LOG.warning(
            'VM %s: external change of %s; the value of the agent is written '
            'again',
            guest.name,
            ', '.join(changed),
        )
        if cputune.SHARES in changed:
            self._share_observer.forget(guest.uuid)

    def _hand_back(
        self, guest: Guest, changed: list[str], shares: int | None
    ) -> None:
        """Stop managing a guest; its restore is up to the caller.

        External values stay. One that a write of the agent has replaced
        becomes the original setting, so that the restore writes it.
        """
        self.count += len(changed)
        if not guest.external:
            self.handed_back += 1
            LOG.warning(
                'VM %s: external change of %s; all other values are restored, '
                'and it is not managed until it starts anew or is resumed',
                guest.name,
                ', '.join(changed),
            )
        guest.holds.add(Hold.EXTERNAL)
        guest.external |= frozenset(changed)
        values = detection.overwritten(guest, guest.expected, shares)
        values = {n: v for n, v in values.items() if n in changed}
        guest.overwritten -= frozenset(changed)
        guest.overwritten |= values.keys()
        guest.original = written_values.replaced(guest.original, values)
        guest.original_tune = guest.original.tune(guest.info.vcpus)
        record = guest.record()
        # The restore does not depend on it: without it, too, a later one
        # leaves alone what is neither original nor written by the agent.
        with contextlib.suppress(store.JournalError):
            self._context.journal.save(record)
        self._misdirected.put_metadata(guest, record)

    def resume(self, guest: Guest) -> str:
        """Manage a guest again that was handed back.

        :returns: why that is not possible now; empty if it is done.
        """
        if not guest.lock.acquire(timeout=RESUME_SECONDS):
            return 'a libvirt call takes its time; try again'
        try:
            if not guest.external:
                return ''
            if guest.journalled:
                return 'not all of its values are restored yet; try again'
            self._context.journal.remove(guest.uuid)
            guest.external = frozenset()
            return ''
        except store.JournalError as error:
            return str(error)
        finally:
            guest.lock.release()
