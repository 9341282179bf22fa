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
from collections.abc import Callable, Iterator
from typing import Any

from nova_vhpc.agent.external_changes import (
    cpu_hotplug,
    detection,
    misdirected_writes,
    reapply,
)
from nova_vhpc.agent.guests import guest
from nova_vhpc.agent.journal import domain_metadata, store, written_values
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.agent.restore import cputune as cputune_restore

LOG = logging.getLogger(__name__)

RESPECTED = 'VM %s: somebody changed %s; theirs from now on'


class ExternalChangePolicy:
    """Finds them, and respects or overrides them.

    :param options: ``[vhpc_agent]``.
    :param records: the journal.
    :param switched: knows of CPUs of the host that came or went.
    :ivar switched: the same.
    :ivar on_shares: told of a VM whose ``cpu_shares`` are to be overridden,
        or not what we wrote last: while windows are played, their player
        alone writes them.
    :ivar still_runs: whether it is still this run of a domain that we look at.
    :ivar took_back: takes back what was written, if that met another run, and
        says whether it did.
    :ivar cpuset: gives the CPUs that a VM's control group has; None where
        that is not known.
    """

    def __init__(
        self,
        options: Any,
        records: store.Journal,
        switched: cpu_hotplug.SwitchedCpus,
    ) -> None:
        self._options = options
        self._journal = records
        self.switched = switched
        self.count = 0
        self.on_shares: Callable[[str], None] = lambda uuid: None
        self.still_runs: Callable[[str, int], bool] = lambda uuid, run: True
        self.took_back: Callable[[guest.Guest], bool] = lambda target: False
        self.cpuset: Callable[[guest.Guest], frozenset[int] | None] = (
            lambda target: None
        )

    def look(self, target: guest.Guest) -> None:
        """Find out whether somebody else wrote to a VM.

        :raises RunChangedError: the domain started anew during a write.
        """
        with target.lock:
            if self._is_as_expected(target):
                return
            # No window may write between the read and what follows from it.
            target.stop_free_weights()
            told = target.echoes
            shares, theirs = told.shares_theirs, told.theirs
            self._look(target, shares)
            # Else another event has come, and with it another look.
            if told.shares_theirs == shares:
                told.shares_theirs = None
            if told.theirs is theirs:
                told.theirs = {}

    def _is_as_expected(self, target: guest.Guest) -> bool:
        """Whether there is nothing to do, while windows go on.

        Nearly always; whatever else it may be is looked at without them.
        """
        if (
            not target.free_weights
            or target.echoes.shares_theirs is not None
            or target.echoes.theirs
            or target.uncertain
            or target.released
        ):
            return False
        old, writes = target.expected, target.writes
        now = cputune.read(target.domain, old)
        return (
            self.still_runs(target.uuid, target.domain_id)
            and len(now.vcpupins) == len(target.original.vcpupins)
            and not self.switched.came(target)
            and not detection.found(target, old, now)
            and (
                now.parameters.get(cputune.SHARES)
                == old.parameters.get(cputune.SHARES)
                # Which of the windows' values was read cannot be told then.
                or target.writes != writes
            )
        )

    def _look(self, target: guest.Guest, theirs: int | None) -> None:
        """With the lock held.

        :param theirs: ``cpu_shares`` of theirs that an event has told of;
            a window may have written over them since.
        """
        old = target.expected
        now = cputune.read(target.domain, old if target.journalled else None)
        if not self.still_runs(target.uuid, target.domain_id):
            # Restarted since it was looked up: that is what changed it.
            return
        self.switched.follow(target, now)
        old = target.expected
        if not target.journalled:
            # We have not written: these are its settings, whoever made them.
            changed = detection.found(target, old, now)
            target.uncertain = False
            target.set_expected(now)
            target.original = now
            target.first_tune = target.in_force
            if changed:
                target.allow(now.cpus)
            if target.settled and not target.floats:
                # What the copy says of its pins is not so any more.
                domain_metadata.remove(target.domain)
                target.settled = False
            return
        if len(now.vcpupins) != len(target.original.vcpupins):
            self._count_vcpus(target, now)
        changed = detection.found_or_told(target, old, now, theirs)
        uncertain, target.uncertain = target.uncertain, False
        target.set_expected(now)
        if changed:
            self._take(target, changed)
        elif target.in_force.shares != old.parameters.get(cputune.SHARES):
            # Not theirs, but not what the player knows of either.
            self.on_shares(target.uuid)
        if not uncertain:
            self._finish(target)
        # Another one's event may have come meanwhile: the last one wins.
        self._give_back(target)

    def _count_vcpus(self, target: guest.Guest, now: cputune.Cputune) -> None:
        """vCPUs were plugged in or out of a VM that we have written to.

        New ones are written once they are expected, so as they are now is how
        they were before us.
        """
        known = target.original.vcpupins
        if len(now.vcpupins) > len(known):
            grown = dataclasses.replace(
                target.original,
                vcpupins=known + now.vcpupins[len(known) :],
            )
            record = dataclasses.replace(target.record(), original=grown)
            self._journal.save(record)
            target.original = grown
            domain_metadata.put(target.domain, record)
        target.first_tune = target.original.tune(target.info.vcpus)

    def settle(self, target: guest.Guest) -> None:
        """Respect what nobody has looked at yet, before a VM is put back.

        With its lock held. The journal need not know: it goes next.
        """
        if self._options.foreign_changes == 'override':
            return
        now = cputune.read(target.domain, target.expected)
        self.switched.follow(target, now, stays=False)
        changed = detection.found_or_told(
            target, target.expected, now, target.echoes.shares_theirs
        )
        if changed:
            self.count += len(changed)
            LOG.warning(RESPECTED, target.name, ', '.join(changed))
            target.released |= frozenset(changed)
        target.set_expected(now)
        # Also where it is known, but could not be given back before.
        self._give_back(target)

    def _take(self, target: guest.Guest, changed: list[str]) -> None:
        """Do what the option says about values that we manage."""
        self.count += len(changed)
        names = ', '.join(changed)
        if self._options.foreign_changes == 'override':
            LOG.warning(
                'VM %s: somebody changed %s; our value is written again',
                target.name,
                names,
            )
            if cputune.SHARES in changed:
                self.on_shares(target.uuid)
            return
        LOG.warning(RESPECTED, target.name, names)
        target.released |= frozenset(changed)
        # First: --restore leaves alone what the journal says is theirs.
        self._give_back(target)
        self._keep_record(target)

    def _keep_record(self, target: guest.Guest) -> None:
        self._journal.save(target.record())
        domain_metadata.put(target.domain, target.record())

    def _finish(self, target: guest.Guest) -> None:
        """Take back ours beside what somebody else has taken over.

        A quota means nothing without its period, and pins are chosen for all
        vCPUs together: whoever has set one of them wants the others as they
        were, not as we made them.
        """
        names = target.taken_back_with()
        if not names:
            return
        # Who sets one sets the next just after, and the journal took its time.
        now = cputune.read(target.domain, target.expected)
        names -= frozenset(detection.found(target, target.expected, now))
        kept = frozenset(cputune.names(target.original)) - names
        if not cputune.differences(target.original, now, kept):
            return
        was = target.original
        parameters = {n: v for n, v in was.parameters.items() if n in names}
        # Theirs may come in the very moment. Its event then tells of it, if
        # this is known to have been written over it.
        target.echoes.note(
            {n: v for n, v in written_values.values(was).items() if n in names}
        )
        narrowed: dict[str, frozenset[int]] = {}
        with self._checked(target):
            cputune_restore.restore(
                target.domain,
                was,
                kept,
                False,
                lambda: self.cpuset(target),
                narrowed,
            )
        now = cputune.read(target.domain, target.expected)
        # What is in force all the same stays ours, to be tried again.
        names &= frozenset(detection.found(target, target.expected, now))
        # Nothing else: what they set meanwhile is left to the next look.
        target.note_written(
            {n: value for n, value in parameters.items() if n in names},
            {
                vcpu: narrowed.get(cputune.pin_name(vcpu), pin)
                for vcpu, pin in enumerate(was.vcpupins)
                if cputune.pin_name(vcpu) in names
            },
        )
        if narrowed:
            # The kernel has taken over the rest: to try again is in vain.
            target.released |= narrowed.keys()
            self._keep_record(target)

    @contextlib.contextmanager
    def _checked(self, target: guest.Guest) -> Iterator[None]:
        """Look after a write whether it met its run."""
        try:
            yield
        finally:
            if self.took_back(target):
                raise misdirected_writes.RunChangedError

    def _give_back(self, target: guest.Guest) -> None:
        """Write what they had written, where we wrote over it."""
        told = target.echoes
        if not told.theirs and told.shares_theirs is None:
            return
        with self._checked(target):
            reapply.bandwidth(target)
            reapply.pins(target)
            reapply.shares(target)
