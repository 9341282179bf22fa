# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The soak finds faults, names them and repeats its inputs."""

import random
import signal

from nova_vhpc.tests import base
from nova_vhpc_lab.soak import damage, fuzzer


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
