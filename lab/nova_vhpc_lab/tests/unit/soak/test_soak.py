# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The soak finds faults, names them and repeats its inputs."""

import os
import random
import signal

from nova_vhpc.tests import base
from nova_vhpc_lab.soak import damage, fuzzer, night


class SoakTest(base.TestCase):
    def setUp(self) -> None:
        super().setUp()
        handler = signal.signal(signal.SIGVTALRM, fuzzer._interrupt)
        self.addCleanup(signal.signal, signal.SIGVTALRM, handler)

    def test_same_seed_and_number_give_same_input(self) -> None:
        inputs: list[str] = []

        def parser(rng: random.Random) -> None:
            inputs.append(damage.encoded(rng, {'a': [1, 2], 'b': 'text'}))

        for seed, number in ((1, 5), (1, 5), (1, 6), (2, 5)):
            self.assertIsNone(fuzzer.execute(parser, seed, number))
        self.assertEqual(inputs[0], inputs[1])
        self.assertEqual(3, len(set(inputs)))

    def test_undocumented_exception_is_a_fault(self) -> None:
        def parser(rng: random.Random) -> None:
            raise ZeroDivisionError('from the parser')

        fault = fuzzer.execute(parser, 1, 0)
        self.assertIn('ZeroDivisionError: from the parser', fault or '')

    def test_endless_parser_is_a_fault(self) -> None:
        self.addCleanup(setattr, fuzzer, 'CPU_LIMIT_S', fuzzer.CPU_LIMIT_S)
        fuzzer.CPU_LIMIT_S = 0.05

        def parser(rng: random.Random) -> None:
            while True:
                pass

        self.assertIn('TooSlow', fuzzer.execute(parser, 1, 0) or '')


class NightTest(base.TestCase):
    """Growth is told from warming up and from single rounds."""

    def growth(self, *memory_kib: int) -> int:
        sizes = [night.Size(kib, 9, 30) for kib in memory_kib]
        return night.growth(sizes).memory_kib

    def test_only_growth_of_a_warm_agent_counts(self) -> None:
        warming = [100 * number for number in range(8)]
        flat = [800] * 12
        self.assertEqual(0, self.growth(*warming, *flat))
        self.assertEqual(0, self.growth(*warming, *flat[1:], 9_000))
        rising = [100 * number for number in range(20)]
        self.assertEqual(800, self.growth(*rising))

    def test_size_of_a_process_is_read(self) -> None:
        size = night.size(os.getpid())
        self.assertGreater(size.memory_kib, 1_000)
        self.assertGreaterEqual(size.threads, 1)
        self.assertGreater(size.files, 2)
