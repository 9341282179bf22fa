# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Jumps of the wall clock while gang windows are played.

Windows begin by the wall clock. A step of it, by microseconds or by years,
must neither stop the windows nor leave a guest with the weight of its window.
"""

import collections
import functools
import random
import time
from collections.abc import Callable

from nova_vhpc.agent.actuators import window_player
from nova_vhpc.control import model
from nova_vhpc_lab.soak import part

TIMEOUT_S = 30.0
"""Time in which the next window must begin, in seconds; windows last 20 ms."""

NORMAL = 1024
FAVOURED = 40960
OTHERS = 20

_JUMPS_US = (1, 1000, 10**6, 3600 * 10**6, 10**13, 86400 * 365 * 10**6)
_GUESTS = ('g0', 'g1', 'g2', 'g3')


class Windows:
    """A player of gang windows whose clock jumps.

    :param rng: source of jumps and schedules.
    :ivar jumps: number of jumps.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.jumps = 0
        self._offset_us = 0
        self._shares: dict[str, int] = {}
        self._player = window_player.WindowPlayer(self._write, self._wall_us)

    def _write(self, uuid: str, shares: int) -> bool:
        self._shares[uuid] = shares
        return True

    def _wall_us(self) -> int:
        return time.time_ns() // 1000 + self._offset_us

    def jump(self) -> str | None:
        """Play some windows over jumps of the clock, then none.

        :returns: what is wrong, None if nothing is.
        """
        self._player.play(_schedule(self._rng.choice((2, 3, 4))))
        for _ in range(self._rng.randint(1, 6)):
            sign = self._rng.choice((-1, 1))
            self._offset_us += sign * self._rng.choice(_JUMPS_US)
            if self._wall_us() < 0:
                self._offset_us = 0
            self.jumps += 1
            borders = self._player.status().borders
            if not _until(functools.partial(self._has_played, borders + 3)):
                return f'no window in {TIMEOUT_S} s after a jump'
        self._player.play(None)
        if not _until(self._nobody_favoured):
            return f'still favoured after the last window: {self._shares}'
        return None

    def _has_played(self, borders: int) -> bool:
        return self._player.status().borders >= borders

    def _nobody_favoured(self) -> bool:
        return set(self._shares.values()) == {NORMAL}

    def stop(self) -> str | None:
        """Stop the player; return what is wrong."""
        if not self._player.stop(TIMEOUT_S):
            return f'not stopped in {TIMEOUT_S} s'
        if not self._nobody_favoured():
            return f'favoured after the stop: {self._shares}'
        return None


def _schedule(gangs: int) -> model.WindowSchedule:
    return model.WindowSchedule(
        tuple(
            model.Turn(
                20_000,
                frozenset({gang}),
                {
                    guest: FAVOURED if guest == gang else OTHERS
                    for guest in _GUESTS
                },
            )
            for gang in _GUESTS[:gangs]
        ),
        dict.fromkeys(_GUESTS, NORMAL),
    )


def _until(condition: Callable[[], bool]) -> bool:
    """Wait for a condition; return whether it came true in time."""
    end_s = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > end_s:
            return False
        time.sleep(0.005)
    return True


class Clock(part.Part):
    """Makes the clock jump while windows are played."""

    name = 'clock'
    counted = 'schedules'

    def run(self, seed: int, first: int, budget: part.Budget) -> bool:
        """Print what is found and how to repeat it; True if nothing is."""
        counts: collections.Counter[str] = collections.Counter()
        with part.unlogged():
            for number in budget.numbers(first):
                windows = Windows(
                    random.Random(f'{seed} {self.name} {number}')
                )
                fault = windows.jump()
                fault = windows.stop() or fault
                if fault is not None:
                    counts['failed'] += 1
                    print(f'{fault}; {self.repeat(seed, number)}', flush=True)
                counts['schedules'] += 1
                counts['jumps'] += windows.jumps
        print(
            f'{self.name}: {counts["schedules"]} schedules, '
            f'{counts["jumps"]} jumps, {counts["failed"]} failed',
            flush=True,
        )
        return not counts['failed']
