# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Play gang windows between two ticks.

At each border of a :class:`model.WindowSchedule`, the player passes the
turn's ``cpu_shares`` to :class:`share_writer.ShareWriter`, whose threads write
them. Neither the tick nor the player waits for libvirt: a guest that hangs
misses its windows, and those of other guests begin on time.
"""

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Set

from nova_vhpc.agent.actuators import share_writer
from nova_vhpc.control import model
from nova_vhpc.control.gang import window_width

LOG = logging.getLogger(__name__)

PAUSE_S = 1.0
"""Pause in seconds after an error in the player itself."""


@dataclasses.dataclass(frozen=True, slots=True)
class WindowStatus:
    """State and counters of the player, for ``nova-vhpc-status``.

    :ivar playing: whether a schedule is in force and its thread runs.
    :ivar turn: index of the turn that began last; None before the first.
    :ivar borders: number of borders played since start.
    :ivar writes: number of calls of ``set_shares`` since start.
    :ivar failures: number of these calls that failed.
    :ivar failing: uuids of guests whose last call failed or has not returned.
    :ivar late_us: running mean of the lateness, in microseconds: the
        time from a border until its last write was done, or the whole window
        if it was not done before the next border.
    :ivar worst_late_us: largest lateness since the schedule began, in
        microseconds.
    :ivar total_late_us: sum of the lateness of all borders since start, in
        microseconds.
    """

    playing: bool
    turn: int | None
    borders: int
    writes: int
    failures: int
    failing: frozenset[str]
    late_us: float
    worst_late_us: int
    total_late_us: float = 0.0


class WindowPlayer:
    """Plays one schedule at a time, aligned to the wall clock.

    :param set_shares: function that writes the live weight of one guest,
        given its uuid and ``cpu_shares``, and returns whether it did. It is
        called for several guests at a time, may raise any exception and may
        hang.
    :param wall_us: function that returns the wall-clock time in microseconds.
    :param place: function that lets a guest's vCPUs run on certain CPUs, given
        its uuid and the CPU of each vCPU (none for all that its pins allow),
        and returns whether it did.
    :param note_window: function that takes note of a window that has ended,
        given the uuids of the guests that it favoured and its length in
        seconds.
    """

    def __init__(
        self,
        set_shares: Callable[[str, int], bool],
        wall_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        place: Callable[[str, tuple[int, ...]], bool] = lambda *_: True,
        note_window: Callable[[Set[str], float], None] = lambda *_: None,
    ) -> None:
        self._shares = share_writer.ShareWriter(set_shares, place)
        self._wall_us = wall_us
        self._note_window = note_window
        # Held while shares are passed to the writer, so that a turn of the
        # old schedule cannot follow one of the new schedule. No thread calls
        # libvirt while it holds the lock.
        self._changed = threading.Condition()
        self._schedule: model.WindowSchedule | None = None
        self._ending = False
        self._thread: threading.Thread | None = None
        self._logged: set[type[Exception]] = set()
        self._turn: int | None = None
        # Guests that the present window favours, and its beginning.
        self._favoured: Set[str] = frozenset()
        self._began_s = 0.0
        self._border_s: float | None = None
        self._lateness = window_width.MeanLateness()
        self._worst_late_us = 0

    def play(self, schedule: model.WindowSchedule | None) -> None:
        """Play this schedule from now on, without waiting for libvirt.

        The schedule that is already in force goes on unchanged, but gets a
        new thread if its thread died. Guests that are not in the new schedule
        get their ``shares_after``.

        :param schedule: None to end the schedule in force.
        """
        with self._changed:
            if self._ending:
                return
            if schedule != self._schedule:
                old, self._schedule = self._schedule, schedule
                self._logged.clear()
                self._reset_turn()
                self._leave(old, schedule)
                self._changed.notify()
            if schedule is not None and not self._alive():
                self._start()

    def forget(self, uuid: str) -> None:
        """Write this guest's shares at the next border, even if unchanged.

        For a guest that was restarted or that has an external change.
        """
        self._shares.forget_written(uuid)

    def stop(self, timeout_s: float = 5.0) -> bool:
        """Give every guest its ``shares_after`` and end the threads.

        :param timeout_s: time limit in seconds.
        :returns: False if that was not done in time; the agent then restores
            the shares from its journal.
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
        """Return the mean lateness of windows in us; 0 while unknown."""
        return self._lateness.known_us

    def status(self) -> WindowStatus:
        """Return the player's state and counters."""
        with self._changed:
            return WindowStatus(
                playing=self._schedule is not None and self._alive(),
                turn=self._turn,
                borders=self._lateness.borders,
                writes=self._shares.writes,
                failures=self._shares.failures,
                failing=self._shares.failing(),
                late_us=self._lateness.mean_us,
                worst_late_us=self._worst_late_us,
                total_late_us=self._lateness.total_us,
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
            self._log_once(error)
            self._leave(self._schedule, None)
        else:
            self._thread = thread

    def _reset_turn(self) -> None:
        self._end_window(frozenset(), time.monotonic())
        self._turn = None
        self._border_s = None
        self._worst_late_us = 0

    def _end_window(self, favoured: Set[str], now_s: float) -> None:
        """Take note of the window that ends.

        :param favoured: guests that the next window favours.
        :param now_s: monotonic time, in seconds.
        """
        if self._favoured:
            self._note_window(self._favoured, now_s - self._began_s)
        self._favoured = favoured
        self._began_s = now_s

    def _leave(
        self,
        old: model.WindowSchedule | None,
        new: model.WindowSchedule | None,
    ) -> None:
        if old is not None:
            self._shares.leave(old.shares_of_leavers(new))

    def _log_once(self, error: Exception) -> None:
        """Log an error once per type and schedule, not in each window."""
        if type(error) not in self._logged:
            self._logged.add(type(error))
            LOG.error(
                'Cannot play gang windows; the original shares of all VMs in '
                'them are restored: %r',
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
                    # The thread must go on, and no guest may keep the weight
                    # of its window.
                    self._log_once(error)
                    self._reset_turn()
                    self._leave(self._schedule, None)
                    wait_s = PAUSE_S
                # play() and stop() end the wait early.
                self._changed.wait(wait_s)

    def _step(self) -> float | None:
        """Do what is due; return the seconds until the next step."""
        if self._schedule is None:
            return self._shares.maintain()
        return self._begin_turn(self._schedule)

    def _begin_turn(self, schedule: model.WindowSchedule) -> float:
        """Begin the present turn; return the seconds until the next border."""
        index, left_us = schedule.turn_at(self._wall_us())
        turn = schedule.turns[index]
        if index == self._turn:
            self._shares.submit(turn.shares, turn.cpus)
            return left_us / 1e6
        now_s = time.monotonic()
        if self._border_s is not None:
            # The writes of the last border took longer than its window.
            self._note_late(self._border_s)
        border_s = now_s
        if self._turn is not None:
            border_s -= (turn.width_us - left_us) / 1e6
        # Without a last turn, the schedule is new. It may begin in the middle
        # of a turn; the earlier part of that turn does not count as lateness.
        self._end_window(turn.favoured, now_s)
        self._turn = index
        self._border_s = border_s
        self._shares.submit(
            turn.shares, turn.cpus, lambda: self._note_late(border_s)
        )
        return left_us / 1e6

    def _note_late(self, border_s: float) -> None:
        """Take note that a border's last write is done or was given up."""
        with self._changed:
            if self._border_s != border_s:
                return
            self._border_s = None
            late_us = (time.monotonic() - border_s) * 1e6
            self._lateness.add(late_us)
            self._worst_late_us = max(self._worst_late_us, int(late_us))
