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
from collections.abc import Iterator
from typing import Any, Protocol

from nova_vhpc.agent.context import HostContext
from nova_vhpc.agent.external_changes import (
    cpu_hotplug,
    detection,
    misdirected_writes,
    reapply,
)
from nova_vhpc.agent.guests.guest import Guest
from nova_vhpc.agent.journal import domain_metadata, written_values
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.agent.restore import cputune as cputune_restore

LOG = logging.getLogger(__name__)

RESPECTED = 'VM %s: somebody changed %s; theirs from now on'


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

    def check(self, guest: Guest) -> None:
        """Find out whether somebody else wrote to a VM.

        :raises RunChangedError: the domain started anew during a write.
        """
        with guest.lock:
            if self._is_as_expected(guest):
                return
            # No window may write between the read and what follows from it.
            guest.stop_free_weights()
            told = guest.echoes
            shares, theirs = told.shares_theirs, told.theirs
            self._look(guest, shares)
            # Else another event has come, and with it another look.
            if told.shares_theirs == shares:
                told.shares_theirs = None
            if told.theirs is theirs:
                told.theirs = {}

    def _is_as_expected(self, guest: Guest) -> bool:
        """Whether there is nothing to do, while windows go on.

        Nearly always; whatever else it may be is looked at without them.
        """
        if (
            not guest.free_weights
            or guest.echoes.shares_theirs is not None
            or guest.echoes.theirs
            or guest.uncertain
            or guest.released
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

    def _look(self, guest: Guest, theirs: int | None) -> None:
        """With the lock held.

        :param theirs: ``cpu_shares`` of theirs that an event has told of;
            a window may have written over them since.
        """
        old = guest.expected
        now = cputune.read(guest.domain, old if guest.journalled else None)
        if not self._context.connection.runs(guest.uuid, guest.domain_id):
            # Restarted since it was looked up: that is what changed it.
            return
        self._cpu_hotplug.follow(guest, now)
        old = guest.expected
        if not guest.journalled:
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
        changed = detection.found_or_told(guest, old, now, theirs)
        uncertain, guest.uncertain = guest.uncertain, False
        guest.set_expected(now)
        if changed:
            self._take(guest, changed)
        elif guest.in_force.shares != old.parameters.get(cputune.SHARES):
            # Not theirs, but not what the player knows of either.
            self._share_observer.forget(guest.uuid)
        if not uncertain:
            self._finish(guest)
        # Another one's event may have come meanwhile: the last one wins.
        self._give_back(guest)

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
        """Respect what nobody has looked at yet, before a VM is put back.

        With its lock held. The journal need not know: it goes next.
        """
        if self._options.foreign_changes == 'override':
            return
        now = cputune.read(guest.domain, guest.expected)
        self._cpu_hotplug.follow(guest, now, stays=False)
        changed = detection.found_or_told(
            guest, guest.expected, now, guest.echoes.shares_theirs
        )
        if changed:
            self.count += len(changed)
            LOG.warning(RESPECTED, guest.name, ', '.join(changed))
            guest.released |= frozenset(changed)
        guest.set_expected(now)
        # Also where it is known, but could not be given back before.
        self._give_back(guest)

    def _take(self, guest: Guest, changed: list[str]) -> None:
        """Do what the option says about values that we manage."""
        self.count += len(changed)
        names = ', '.join(changed)
        if self._options.foreign_changes == 'override':
            LOG.warning(
                'VM %s: somebody changed %s; our value is written again',
                guest.name,
                names,
            )
            if cputune.SHARES in changed:
                self._share_observer.forget(guest.uuid)
            return
        LOG.warning(RESPECTED, guest.name, names)
        guest.released |= frozenset(changed)
        # First: --restore leaves alone what the journal says is theirs.
        self._give_back(guest)
        self._keep_record(guest)

    def _keep_record(self, guest: Guest) -> None:
        self._context.journal.save(guest.record())
        domain_metadata.put(guest.domain, guest.record())

    def _finish(self, guest: Guest) -> None:
        """Take back ours beside what somebody else has taken over.

        A quota means nothing without its period, and pins are chosen for all
        vCPUs together: whoever has set one of them wants the others as they
        were, not as we made them.
        """
        names = guest.taken_back_with()
        if not names:
            return
        # Who sets one sets the next just after, and the journal took its time.
        now = cputune.read(guest.domain, guest.expected)
        names -= frozenset(detection.found(guest, guest.expected, now))
        kept = frozenset(cputune.names(guest.original)) - names
        if not cputune.differences(guest.original, now, kept):
            return
        was = guest.original
        parameters = {n: v for n, v in was.parameters.items() if n in names}
        # Theirs may come in the very moment. Its event then tells of it, if
        # this is known to have been written over it.
        guest.echoes.note(
            {n: v for n, v in written_values.values(was).items() if n in names}
        )
        narrowed: dict[str, frozenset[int]] = {}
        with self._checked(guest):
            cputune_restore.restore(
                guest.domain,
                was,
                kept,
                False,
                lambda: self._context.processes.cpuset(guest.identity.pid),
                narrowed,
            )
        now = cputune.read(guest.domain, guest.expected)
        # What is in force all the same stays ours, to be tried again.
        names &= frozenset(detection.found(guest, guest.expected, now))
        # Nothing else: what they set meanwhile is left to the next look.
        guest.note_written(
            {n: value for n, value in parameters.items() if n in names},
            {
                vcpu: narrowed.get(cputune.pin_name(vcpu), pin)
                for vcpu, pin in enumerate(was.vcpupins)
                if cputune.pin_name(vcpu) in names
            },
        )
        if narrowed:
            # The kernel has taken over the rest: to try again is in vain.
            guest.released |= narrowed.keys()
            self._keep_record(guest)

    @contextlib.contextmanager
    def _checked(self, guest: Guest) -> Iterator[None]:
        """Look after a write whether it met its run."""
        try:
            yield
        finally:
            if self._misdirected.revert(guest, restored=True):
                raise misdirected_writes.RunChangedError

    def _give_back(self, guest: Guest) -> None:
        """Write what they had written, where we wrote over it."""
        told = guest.echoes
        if not told.theirs and told.shares_theirs is None:
            return
        with self._checked(guest):
            reapply.bandwidth(guest)
            reapply.pins(guest)
            reapply.shares(guest)
