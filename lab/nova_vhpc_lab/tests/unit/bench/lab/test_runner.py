# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""How the lab measures what guests do alone."""

import contextlib
from unittest import mock

from nova_vhpc.tests import base
from nova_vhpc_lab.bench.lab import mixes, runner


class StubGuestSet:
    """Guests of which only those that run alone make progress."""

    web = None

    def __init__(self, mix, rates):
        self.mix = mix
        self._rates = rates
        self._running = frozenset(rates)

    @contextlib.contextmanager
    def only(self, names):
        self._running = frozenset(names)
        yield
        self._running = frozenset(self._rates)

    @contextlib.contextmanager
    def pinned_apart(self, names):
        yield

    without_quota = pinned_apart

    def measure(self, seconds):
        return {
            name: rate if name in self._running else 0.0
            for name, rate in self._rates.items()
        }


class MeasureAloneTest(base.TestCase):
    def setUp(self):
        super().setUp()
        sleep = mock.patch.object(runner.time, 'sleep')
        sleep.start()
        self.addCleanup(sleep.stop)

    def test_each_guest_is_measured_by_itself(self):
        rates = {'a': 100.0, 'b': 72.0, 'h': 50.0, 'i': 49.0}
        guest_set = StubGuestSet(mixes.MIXES['hogs'], rates)
        self.assertEqual(
            rates, runner.measure_alone(guest_set, runner.Timing())
        )

    def test_members_of_a_cluster_run_together(self):
        rates = {'p0': 10.0, 'p1': 11.0, 'q0': 12.0, 'q1': 13.0}
        guest_set = StubGuestSet(mixes.MIXES['network'], rates)
        self.assertEqual(
            rates, runner.measure_alone(guest_set, runner.Timing())
        )
