# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""Tests of which rounds of an experiment count."""

from nova_vhpc.tests import base
from nova_vhpc_lab.bench.lab import rounds


class Watch:
    def __init__(self, *loads):
        self.loads = list(loads)
        self.taken = 0

    def take(self):
        # The first call of each round drops what was before it.
        self.taken += 1
        return 9.9 if self.taken % 2 else self.loads.pop(0)


class UndisturbedTest(base.TestCase):
    def measure(self, count, *loads):
        results, messages = {}, []
        values = iter(range(100))
        for current in rounds.undisturbed(
            'pool', Watch(*loads), 0.1, count, results, messages.append
        ):
            rounds.keep(current, 'cg', 'none', next(values))
        return results, messages

    def test_disturbed_round_is_measured_again(self):
        results, messages = self.measure(2, 0.05, 0.5, 0.1)
        self.assertEqual({'cg': {'none': [0, 2]}}, results)
        self.assertEqual(1, len(messages))
        self.assertIn('something else took 0.50 CPUs', messages[0])

    def test_measurement_ends_when_too_many_rounds_are_disturbed(self):
        error = self.assertRaises(
            rounds.DisturbedError, self.measure, 2, 0.0, 0.5, 0.5, 0.5
        )
        self.assertIn('pool', str(error))
        self.assertIn('3 of 4 rounds', str(error))
