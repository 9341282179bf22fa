# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The rule by which a waiting thread spins or naps, compiled from C."""

import ctypes
import functools
import itertools
import pathlib
import subprocess
import tempfile

import hypothesis
from hypothesis import strategies

from nova_vhpc.tests import base

SOURCE = pathlib.Path(__file__).parents[4] / 'guest/rule.c'
MS = 1_000_000
GAP_NS, HOLD_NS, WINDOW_NS = 700_000, 200 * MS, 100 * MS
SPIN_NS, LONG_NS = 50_000, 3 * MS
SHARE, LONG_PART = 8, 32
NAP_NS, NAP_MAX_NS = 50_000, MS
AUTO, PASSIVE, ACTIVE = range(3)


class Process(ctypes.Structure):
    _fields_ = (
        ('mode', ctypes.c_int),
        *((name, ctypes.c_int64) for name in ('watched_ns', 'gaps_ns')),
        ('taken_until_ns', ctypes.c_int64),
        *((name, ctypes.c_int64) for name in ('stolen_ns', 'stolen_at_ns')),
        *((name, ctypes.c_uint64) for name in ('waits', 'naps')),
        *((name, ctypes.c_uint64) for name in ('nap_ns', 'taken')),
    )


class Wait(ctypes.Structure):
    _fields_ = (
        *((n, ctypes.c_int64) for n in ('bytes', 'since_ns', 'last_ns')),
        ('endless', ctypes.c_int),
    )


@functools.cache
def library() -> ctypes.CDLL:
    made = pathlib.Path(tempfile.mkdtemp(), 'rule.so')
    subprocess.run(
        ('cc', '-shared', '-fPIC', '-Wall', '-Werror', '-o', made, SOURCE),
        check=True,
    )
    loaded = ctypes.CDLL(str(made))
    loaded.vhpc_wait_polled.restype = ctypes.c_int64
    return loaded


class Call:
    """A thread in a blocking call, on a clock of its own."""

    def __init__(self, mode: int = AUTO, size: int = 8) -> None:
        self.process, self.wait = Process(mode=mode), Wait()
        self.now_ns = 1000 * MS
        self.begin(size)

    def begin(self, size: int = 8) -> None:
        library().vhpc_wait_begin(
            *self._both(), ctypes.c_int64(size), ctypes.c_int64(self.now_ns)
        )

    def poll(
        self, took_ns: int = 500, before_ns: int = 50, switched: bool = False
    ) -> int:
        """Poll in vain; return the nap, in nanoseconds."""
        begin_ns = self.now_ns + before_ns
        self.now_ns = begin_ns + took_ns
        nap_ns: int = library().vhpc_wait_polled(
            *self._both(),
            ctypes.c_int64(begin_ns),
            ctypes.c_int64(self.now_ns),
            int(switched),
        )
        return nap_ns

    def nap(self, asked_ns: int, late_ns: int = 0) -> None:
        self.now_ns += asked_ns + late_ns
        library().vhpc_wait_napped(
            *self._both(),
            ctypes.c_int64(asked_ns),
            ctypes.c_int64(self.now_ns),
        )

    def steal(self, stolen_ns: int) -> None:
        library().vhpc_wait_stolen(
            ctypes.byref(self.process),
            ctypes.c_int64(stolen_ns),
            ctypes.c_int64(self.now_ns),
        )

    def spin(self, length_ns: int) -> int:
        """Poll for so long; return the first nap, 0 if there was none."""
        end_ns = self.now_ns + length_ns
        while self.now_ns < end_ns:
            if nap_ns := self.poll():
                return nap_ns
        return 0

    def run(self, length_ns: int) -> None:
        """Wait for so long in one call, and nap as told."""
        self.begin()
        end_ns = self.now_ns + length_ns
        while self.now_ns < end_ns:
            if nap_ns := self.poll(took_ns=10_000):
                self.nap(nap_ns)

    @property
    def is_taken(self) -> bool:
        taken: int = library().vhpc_wait_taken(
            ctypes.byref(self.process), ctypes.c_int64(self.now_ns)
        )
        return bool(taken)

    def _both(self) -> tuple[object, object]:
        return ctypes.byref(self.process), ctypes.byref(self.wait)


class RuleTest(base.TestCase):
    def test_thread_spins_while_nobody_takes_its_cpu(self) -> None:
        call = Call()
        self.assertEqual(0, call.spin(LONG_NS - MS // 100))
        self.assertFalse(call.is_taken)

    def test_long_wait_naps_a_small_part_of_it_at_most(self) -> None:
        call = Call()
        for _ in range(200):
            if nap_ns := call.poll():
                waited_ns = call.now_ns - call.wait.since_ns
                self.assertGreaterEqual(waited_ns, LONG_NS)
                self.assertEqual(
                    min(waited_ns // LONG_PART, NAP_MAX_NS), nap_ns
                )
                call.nap(nap_ns)
            else:
                call.spin(MS)
        self.assertFalse(call.is_taken)

    def test_cpu_that_is_taken_is_noticed_in_every_way(self) -> None:
        gap_ns = WINDOW_NS // SHARE // 8
        ways = {
            'between polls': lambda call: call.poll(before_ns=gap_ns),
            'in a poll': lambda call: call.poll(took_ns=gap_ns),
            'by another thread': lambda call: call.poll(
                took_ns=gap_ns, switched=True
            ),
            'after a nap': lambda call: call.nap(NAP_NS, gap_ns),
        }
        for way, happens in ways.items():
            with self.subTest(way=way):
                call = Call()
                for _ in range(8):
                    self.assertFalse(call.is_taken)
                    call.poll()
                    happens(call)
                call.poll()
                happens(call)
                self.assertTrue(call.is_taken)
                call.begin()
                self.assertEqual(0, call.spin(SPIN_NS - 2000))
                self.assertEqual(NAP_NS, call.spin(4000))
                # Once it has waited for long without gaps, it spins again.
                for _ in range(200):
                    call.run(MS)
                call.begin()
                self.assertEqual(0, call.spin(MS))

    def test_gaps_decide_by_their_share_of_the_time_waited(self) -> None:
        # (gap, every, naps): interrupts, a daemon, hogs, other clusters; in
        # waits of 40 us to 3 ms.
        cases = (
            (GAP_NS - 1000, MS, False),
            (MS, 50 * MS, False),
            (4 * MS, 120 * MS, False),
            (3 * MS, 30 * MS, False),
            (4 * MS, 24 * MS, True),
            (MS, 3 * MS, True),
            (4 * MS, 12 * MS, True),
        )
        for (gap_ns, every_ns, naps), wait_ns in itertools.product(
            cases, (40_000, 200_000, MS, LONG_NS - MS)
        ):
            with self.subTest(gap_ns=gap_ns, every_ns=every_ns, wait=wait_ns):
                call = Call()
                taken = []
                for _ in range(30):
                    end_ns = call.now_ns + every_ns - gap_ns
                    while call.now_ns < end_ns:
                        call.run(min(wait_ns, end_ns - call.now_ns))
                    call.begin()
                    call.poll(before_ns=gap_ns)
                    taken.append(call.is_taken)
                self.assertEqual({naps}, set(taken[15:]))

    def test_naps_of_a_wait_without_end_are_short(self) -> None:
        for mode, nap_ns in ((AUTO, 0), (PASSIVE, NAP_NS)):
            with self.subTest(mode=mode):
                call = Call(mode)
                call.wait.endless = 1
                call.now_ns += 100_000
                call.wait.last_ns = call.now_ns
                for _ in range(1000):
                    self.assertEqual(nap_ns, call.poll(took_ns=10_000))
                    if nap_ns:
                        call.nap(nap_ns)

    def test_steal_of_more_than_an_eighth_is_taken(self) -> None:
        for stolen_ns, taken in ((12 * MS, False), (13 * MS, True)):
            with self.subTest(stolen_ns=stolen_ns):
                call = Call()
                call.steal(77)
                self.assertFalse(call.is_taken)
                call.now_ns += 100 * MS
                call.steal(77 + stolen_ns)
                self.assertEqual(taken, call.is_taken)

    def test_poll_that_moves_data_is_no_sign_and_delays_naps(self) -> None:
        call = Call(size=1 << 24)
        for _ in range(20):
            self.assertEqual(0, call.poll(took_ns=900_000))
        self.assertFalse(call.is_taken)
        self.assertEqual(0, call.spin(LONG_NS - MS // 10))

    def test_poll_in_which_another_thread_ran_moved_no_data(self) -> None:
        call = Call()
        naps = [call.poll(took_ns=100_000, switched=True) for _ in range(40)]
        self.assertGreater(max(naps), 0)

    @hypothesis.given(
        strategies.sampled_from((AUTO, PASSIVE, ACTIVE)),
        strategies.lists(
            strategies.tuples(
                strategies.integers(0, 5 * MS),
                strategies.integers(0, 5 * MS),
                strategies.booleans(),
            ),
            max_size=50,
        ),
    )
    def test_no_nap_is_longer_than_what_was_waited(
        self, mode: int, polls: list[tuple[int, int, bool]]
    ) -> None:
        call = Call(mode)
        start_ns = call.now_ns
        for took_ns, before_ns, switched in polls:
            nap_ns = call.poll(took_ns, before_ns, switched)
            if mode == ACTIVE:
                self.assertEqual(0, nap_ns)
            elif nap_ns:
                self.assertLessEqual(NAP_NS, nap_ns)
                self.assertLessEqual(nap_ns, NAP_MAX_NS)
                self.assertLessEqual(nap_ns, call.now_ns - start_ns)
                call.nap(nap_ns)
