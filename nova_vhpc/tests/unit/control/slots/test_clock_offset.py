# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""Clocks are compared by messages in both directions."""

import random

from oslotest import base

from nova_vhpc.control.slots import clock_offset, messages


class Clocks:
    """Hosts with wrong clocks that send each other messages."""

    def __init__(self, **errors_us: int) -> None:
        self.errors_us = errors_us
        self.offsets = {
            name: clock_offset.ClockOffset(name) for name in errors_us
        }
        self.now_us = 10**9
        self.mean_delay_us = 5_000
        self._random = random.Random(1)

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            self.now_us += 2_000_000
            for sender, offset in self.offsets.items():
                sent_us = self.now_us + self.errors_us[sender] + 10**15
                lags = offset.lags()
                for name, receiver in self.offsets.items():
                    if name != sender:
                        delay_us = round(
                            self._random.expovariate(1 / self.mean_delay_us)
                        )
                        delay_us += 2_000
                        receiver.heard(
                            sender,
                            sent_us,
                            sent_us
                            + delay_us
                            + self.errors_us[name]
                            - self.errors_us[sender],
                            lags,
                            self.now_us,
                        )
                offset.offset_us(self.now_us, self.offsets)

    def offset_us(self, name: str) -> int | None:
        return self.offsets[name].offset_us(self.now_us, self.offsets)

    def off(self) -> set[str]:
        return {name for name, offset in self.offsets.items() if offset.is_off}


class ClockOffsetTest(base.BaseTestCase):
    def test_nothing_is_known_without_messages(self) -> None:
        offset = clock_offset.ClockOffset('a')
        self.assertIsNone(offset.offset_us(0, ()))
        self.assertFalse(offset.is_off)

    def test_few_messages_tell_nothing(self) -> None:
        clocks = Clocks(a=0, b=40_000)
        clocks.run(4)
        self.assertEqual(set(), clocks.off())
        self.assertEqual({}, clocks.offsets['a'].lags())

    def test_slow_messages_make_no_clock_wrong(self) -> None:
        clocks = Clocks(a=0, b=0, c=0)
        clocks.mean_delay_us = 20_000
        clocks.run(20)
        self.assertEqual(set(), clocks.off())

    def test_the_one_wrong_clock_of_several_is_found(self) -> None:
        for error_us in (40_000, -40_000):
            clocks = Clocks(a=0, b=error_us, c=1_000, d=-1_000)
            clocks.run(20)
            self.assertEqual({'b'}, clocks.off())
            offset_us = clocks.offset_us('b')
            assert offset_us is not None
            self.assertLess(abs(offset_us - error_us), 10_000)

    def test_host_without_a_lease_in_force_does_not_count(self) -> None:
        clocks = Clocks(a=0, b=0, forged=10**6, invented=10**6, odd=10**6)
        clocks.run(20)
        self.assertIn('a', clocks.off())
        offset = clocks.offsets['a']
        offset.offset_us(clocks.now_us, {'b'})
        self.assertFalse(offset.is_off)

    def test_of_two_hosts_both_are_off(self) -> None:
        clocks = Clocks(a=0, b=40_000)
        clocks.run(20)
        self.assertEqual({'a', 'b'}, clocks.off())

    def test_clock_that_is_set_right_counts_again(self) -> None:
        clocks = Clocks(a=0, b=40_000, c=0)
        clocks.run(20)
        clocks.errors_us['b'] = 0
        clocks.run(40)
        self.assertEqual(set(), clocks.off())

    def test_clock_that_nearly_agrees_again_stays_off(self) -> None:
        clocks = Clocks(a=0, b=8_000, c=0)
        clocks.run(20)
        self.assertEqual(set(), clocks.off())
        clocks.errors_us['b'] = 40_000
        clocks.run(40)
        clocks.errors_us['b'] = 8_000
        clocks.run(40)
        self.assertEqual({'b'}, clocks.off())

    def test_messages_state_the_lags_of_all_hosts_in_turn(self) -> None:
        names = [f'h{number}' for number in range(20)]
        clocks = Clocks(**dict.fromkeys(names, 0))
        clocks.run(6)
        stated: set[str] = set()
        for _ in range(20):
            lags = clocks.offsets['h0'].lags()
            self.assertLessEqual(len(lags), messages.MAX_LAGS)
            stated |= lags.keys()
        self.assertEqual(set(names) - {'h0'}, stated)

    def test_flood_of_host_names_is_bounded(self) -> None:
        offset = clock_offset.ClockOffset('a')
        for number in range(5000):
            offset.heard(f'z{number}', 1, 2, {'a': 3}, 0)
        self.assertLessEqual(len(offset._lags), 4096)
        self.assertLessEqual(len(offset._stated), 4096)
