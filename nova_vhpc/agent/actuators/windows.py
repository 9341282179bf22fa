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


"""Play gang windows between two ticks: the small fast actuator.

At each border of a :class:`model.WindowSchedule` the player gives the turn's
``cpu_shares``. It has threads of its own, which alone call ``set_shares``;
so a slow or hanging libvirt makes windows late and never stops the tick.
"""

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping

from nova_vhpc.control import model

LOG = logging.getLogger(__name__)

HELPERS = 4
"""libvirtd serves five calls of one client at a time by default."""

ENOUGH_BORDERS = 10
"""The first ones say little."""

BACK_OFF_S = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""How long a domain is left alone after 1, 2, ... failures in a row."""


@dataclasses.dataclass(frozen=True, slots=True)
class WindowStatus:
    """What the player did, for ``nova-vhpc-status``.

    :ivar playing: a schedule is in force.
    :ivar turn: index of the turn that was last begun; None before it.
    :ivar borders: borders played since start.
    :ivar writes: calls of ``set_shares`` since start.
    :ivar failures: calls that failed.
    :ivar failing: domains whose last call failed.
    :ivar late_us: mean over the last borders of the time from a border
        until its last write was done.
    :ivar worst_late_us: the longest since the schedule began.
    """

    playing: bool
    turn: int | None
    borders: int
    writes: int
    failures: int
    failing: frozenset[str]
    late_us: float
    worst_late_us: int


@dataclasses.dataclass(slots=True)
class _Failure:
    count: int
    not_before_s: float


class WindowPlayer:
    """Plays one schedule at a time, aligned to the wall clock.

    :param set_shares: called with (VM uuid, ``cpu_shares``) to write one
        domain's live weight, for several domains at a time; may raise
        anything, and may take its time.
    :param wall_us: wall-clock time in microseconds.
    """

    def __init__(
        self,
        set_shares: Callable[[str, int], None],
        wall_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        self._set_shares = set_shares
        self._wall_us = wall_us
        self._changed = threading.Condition()
        self._schedule: model.WindowSchedule | None = None
        self._ending = False
        self._thread: threading.Thread | None = None
        # What follows is the thread's own; others only look at it.
        self._in_force: dict[str, int] = {}
        self._failures: dict[str, _Failure] = {}
        self._turn: int | None = None
        self._borders = 0
        self._writes = 0
        self._failed = 0
        self._late_us = 0.0
        self._worst_late_us = 0

    def play(self, schedule: model.WindowSchedule | None) -> None:
        """Play this schedule from now on; None ends the one in force.

        Returns at once. The same schedule again changes nothing. VMs that
        the new schedule leaves out get their ``shares_after``.
        """
        with self._changed:
            if self._ending or schedule == self._schedule:
                return
            self._schedule = schedule
            if self._thread is None and schedule is not None:
                self._thread = threading.Thread(
                    target=self._run, name='gang-windows', daemon=True
                )
                self._thread.start()
            self._changed.notify()

    def forget(self, uuid: str) -> None:
        """Write this VM's shares anew at the next border.

        For a domain that was restarted or written by somebody else.
        """
        with self._changed:
            self._in_force.pop(uuid, None)

    def stop(self, timeout_s: float = 5.0) -> bool:
        """Give every VM its ``shares_after`` and end the thread.

        :returns: False if that was not done in time; the agent's journal
            then puts the shares back.
        """
        with self._changed:
            self._ending = True
            self._schedule = None
            thread = self._thread
            self._changed.notify()
        if thread is None:
            return True
        thread.join(timeout_s)
        return not thread.is_alive() and not self._failures

    def late_us(self) -> float:
        """How late windows begin, on average; 0 before enough of them."""
        return self._late_us if self._borders >= ENOUGH_BORDERS else 0.0

    def status(self) -> WindowStatus:
        """What it does and did."""
        with self._changed:
            return WindowStatus(
                playing=self._schedule is not None,
                turn=self._turn,
                borders=self._borders,
                writes=self._writes,
                failures=self._failed,
                failing=frozenset(self._failures),
                late_us=self._late_us,
                worst_late_us=self._worst_late_us,
            )

    def _run(self) -> None:
        played: model.WindowSchedule | None = None
        while True:
            with self._changed:
                schedule = self._schedule
                ending = self._ending
            if schedule != played:
                self._leave(played, schedule)
                played = schedule
            if ending:
                return
            wait_s = None if schedule is None else self._begin_turn(schedule)
            with self._changed:
                # The wait ends early when a new schedule has come.
                if self._schedule == played and not self._ending:
                    self._changed.wait(wait_s)

    def _begin_turn(self, schedule: model.WindowSchedule) -> float:
        """Write the turn that it is now; seconds until the next border."""
        index, left_us = schedule.turn_at(self._wall_us())
        turn = schedule.turns[index]
        border = index != self._turn
        self._write(turn.shares)
        index_now, left_now_us = schedule.turn_at(self._wall_us())
        if border:
            late_us = turn.width_us - left_us
            if index_now == index:
                late_us = turn.width_us - left_now_us
            with self._changed:
                self._turn = index
                self._borders += 1
                self._late_us += (late_us - self._late_us) / min(
                    self._borders, 100
                )
                self._worst_late_us = max(self._worst_late_us, late_us)
        if index_now != index:
            # The writes outlasted the window: on with the next one.
            return 0.0
        return left_now_us / 1e6

    def _leave(
        self,
        old: model.WindowSchedule | None,
        new: model.WindowSchedule | None,
    ) -> None:
        with self._changed:
            self._turn = None
            self._worst_late_us = 0
        if old is None:
            return
        staying = new.shares_after.keys() if new is not None else ()
        left = {
            uuid: shares
            for uuid, shares in old.shares_after.items()
            if uuid not in staying
        }
        # No back-off: it is the last chance.
        with self._changed:
            for uuid in left:
                self._failures.pop(uuid, None)
        self._write(left)
        with self._changed:
            for uuid in left:
                self._in_force.pop(uuid, None)
                # Nobody will write to these again: failing is over, but
                # a stop that could not restore all must say so.
                if new is not None:
                    self._failures.pop(uuid, None)

    def _write(self, shares: Mapping[str, int]) -> None:
        """Write what differs, all at the same time.

        One after the other, nobody or two would be favoured for as long as
        a call takes: several milliseconds on a busy host.
        """
        now_s = time.monotonic()
        todo: list[tuple[str, int]] = []
        for uuid, value in shares.items():
            failure = self._failures.get(uuid)
            waits = failure is not None and now_s < failure.not_before_s
            if self._in_force.get(uuid) != value and not waits:
                todo.append((uuid, value))
        # Daemons, not a pool: an executor waits at exit for hanging calls.
        helpers = [
            threading.Thread(
                target=self._write_some, args=(part,), daemon=True
            )
            for part in (todo[n::HELPERS] for n in range(1, HELPERS))
            if part
        ]
        for helper in helpers:
            helper.start()
        self._write_some(todo[::HELPERS])
        for helper in helpers:
            helper.join()

    def _write_some(self, todo: Iterable[tuple[str, int]]) -> None:
        for uuid, value in todo:
            try:
                self._set_shares(uuid, value)
            except Exception as error:
                self._note_failure(uuid, value, error)
            else:
                self._note_success(uuid, value)

    def _note_failure(self, uuid: str, value: int, error: Exception) -> None:
        with self._changed:
            failure = self._failures.setdefault(uuid, _Failure(0, 0.0))
        if failure.count == 0:
            LOG.warning(
                'VM %s: cpu_shares %d could not be written, its windows are '
                'skipped until it works again: %s',
                uuid,
                value,
                error,
            )
        back_off_s = BACK_OFF_S[min(failure.count, len(BACK_OFF_S) - 1)]
        failure.count += 1
        failure.not_before_s = time.monotonic() + back_off_s
        with self._changed:
            self._failed += 1
            self._writes += 1
            # Which weight is in force is not known any more.
            self._in_force.pop(uuid, None)

    def _note_success(self, uuid: str, value: int) -> None:
        with self._changed:
            failure = self._failures.pop(uuid, None)
            self._writes += 1
            self._in_force[uuid] = value
        if failure is not None:
            LOG.info('VM %s: cpu_shares are written again', uuid)
