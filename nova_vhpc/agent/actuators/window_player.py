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

At each border of a :class:`model.WindowSchedule` the player wants the turn's
``cpu_shares``; the threads of :class:`shares.ShareWriter` write them. Neither
the tick nor the player ever waits for libvirt: a VM that hangs misses its
windows, and the others' begin on time.
"""

import dataclasses
import logging
import threading
import time
from collections.abc import Callable

from nova_vhpc.agent.actuators import share_writer
from nova_vhpc.control import model

LOG = logging.getLogger(__name__)

ENOUGH_BORDERS = 10
"""The first ones say little."""

PAUSE_S = 1.0
"""How long nothing is played after a fault of ours."""


@dataclasses.dataclass(frozen=True, slots=True)
class WindowStatus:
    """What the player did, for ``nova-vhpc-status``.

    :ivar playing: a schedule is in force, and somebody plays it.
    :ivar turn: index of the turn that was last begun; None before it.
    :ivar borders: borders played since start.
    :ivar writes: calls of ``set_shares`` since start.
    :ivar failures: calls that failed.
    :ivar failing: domains whose last call failed or does not return.
    :ivar late_us: mean over the last borders of the time from a border
        until its last write was done; the whole window if it was not.
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


class WindowPlayer:
    """Plays one schedule at a time, aligned to the wall clock.

    :param set_shares: called with (VM uuid, ``cpu_shares``) to write one
        domain's live weight, for several domains at a time; returns
        whether it was written, may raise anything, and may take its time.
    :param wall_us: wall-clock time in microseconds.
    """

    def __init__(
        self,
        set_shares: Callable[[str, int], bool],
        wall_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        self._shares = share_writer.ShareWriter(set_shares)
        self._wall_us = wall_us
        # Held while shares are wanted, so that what a new schedule wants
        # is never overtaken by the old one. Nobody calls libvirt with it.
        self._changed = threading.Condition()
        self._schedule: model.WindowSchedule | None = None
        self._ending = False
        self._thread: threading.Thread | None = None
        self._told: set[type[Exception]] = set()
        self._turn: int | None = None
        self._border_s: float | None = None
        self._borders = 0
        self._late_us = 0.0
        self._worst_late_us = 0

    def play(self, schedule: model.WindowSchedule | None) -> None:
        """Play this schedule from now on; None ends the one in force.

        Returns at once. The same schedule again changes nothing, unless
        nobody plays it. VMs that the new schedule leaves out get their
        ``shares_after``.
        """
        with self._changed:
            if self._ending:
                return
            if schedule != self._schedule:
                old, self._schedule = self._schedule, schedule
                self._told.clear()
                self._begin_anew()
                self._leave(old, schedule)
                self._changed.notify()
            if schedule is not None and not self._alive():
                self._start()

    def forget(self, uuid: str) -> None:
        """Write this VM's shares anew at the next border.

        For a domain that was restarted or written by somebody else.
        """
        self._shares.forget_written(uuid)

    def stop(self, timeout_s: float = 5.0) -> bool:
        """Give every VM its ``shares_after`` and end the threads.

        :returns: False if that was not done in time; the agent's journal
            then puts the shares back.
        """
        end_s = time.monotonic() + timeout_s
        with self._changed:
            self._ending = True
            old, self._schedule = self._schedule, None
            self._leave(old, None)
            thread = self._thread
            self._changed.notify()
        done = self._shares.close(timeout_s)
        if thread is not None:
            thread.join(max(0.0, end_s - time.monotonic()))
        return done and not self._alive()

    def late_us(self) -> float:
        """How late windows begin, on average; 0 before enough of them."""
        return self._late_us if self._borders >= ENOUGH_BORDERS else 0.0

    def status(self) -> WindowStatus:
        """What it does and did."""
        with self._changed:
            return WindowStatus(
                playing=self._schedule is not None and self._alive(),
                turn=self._turn,
                borders=self._borders,
                writes=self._shares.writes,
                failures=self._shares.failures,
                failing=self._shares.failing(),
                late_us=self._late_us,
                worst_late_us=self._worst_late_us,
            )

    # -- with the lock held -------------------------------------------------

    def _alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _start(self) -> None:
        thread = threading.Thread(
            target=self._run, name='gang-windows', daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            # The next tick tries again.
            self._tell(error)
            self._leave(self._schedule, None)
        else:
            self._thread = thread

    def _begin_anew(self) -> None:
        self._turn = None
        self._border_s = None
        self._worst_late_us = 0

    def _leave(
        self,
        old: model.WindowSchedule | None,
        new: model.WindowSchedule | None,
    ) -> None:
        if old is None:
            return
        staying = new.shares_after.keys() if new is not None else ()
        self._shares.leave(
            {
                uuid: value
                for uuid, value in old.shares_after.items()
                if uuid not in staying
            }
        )

    def _tell(self, error: Exception) -> None:
        """Once per kind and schedule, not in each window."""
        if type(error) not in self._told:
            self._told.add(type(error))
            LOG.error(
                'Windows cannot be played, VMs get their shares back: %r',
                error,
                exc_info=error,
            )

    # -- in the player's thread ---------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._ending:
                    return
                try:
                    wait_s = self._step()
                except Exception as error:
                    # It must neither end the thread nor leave VMs favoured.
                    self._tell(error)
                    self._begin_anew()
                    self._leave(self._schedule, None)
                    wait_s = PAUSE_S
                # Ends early when a new schedule has come.
                self._changed.wait(wait_s)

    def _step(self) -> float | None:
        """Do what is due; seconds until the next step."""
        if self._schedule is None:
            return self._shares.tend()
        return self._begin_turn(self._schedule)

    def _begin_turn(self, schedule: model.WindowSchedule) -> float:
        """Want the turn that it is now; seconds until the next border."""
        index, left_us = schedule.turn_at(self._wall_us())
        turn = schedule.turns[index]
        if index == self._turn:
            self._shares.want(turn.shares)
            return left_us / 1e6
        now_s = time.monotonic()
        if self._border_s is not None:
            # Its writes outlasted its window.
            self._note_late(self._border_s)
        border_s = now_s
        if self._turn is not None:
            border_s -= (turn.width_us - left_us) / 1e6
        # Else the schedule is new: joined in the middle of a turn, it is not
        # late by what of that was over before.
        self._turn = index
        self._border_s = border_s
        self._shares.want(turn.shares, lambda: self._note_late(border_s))
        return left_us / 1e6

    def _note_late(self, border_s: float) -> None:
        """The last write of a border is done, or is waited for no more."""
        with self._changed:
            if self._border_s != border_s:
                return
            self._border_s = None
            late_us = (time.monotonic() - border_s) * 1e6
            self._borders += 1
            self._late_us += (late_us - self._late_us) / min(
                self._borders, 100
            )
            self._worst_late_us = max(self._worst_late_us, int(late_us))
