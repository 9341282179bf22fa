# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Judgement of what VMs receive."""

from unittest import mock

import numpy as np

from nova_vhpc.tests import base
from nova_vhpc_lab.sim import fairness, measurement, programs
from nova_vhpc_lab.sim.host_spec import HostSpec, VmSpec
from nova_vhpc_lab.sim.measurement import VmRecord

SAMPLES_PER_S = 10


def record(*cpus_by_second, progress=0.5, latency_us=None):
    """Return what a VM received, in CPUs, second by second."""
    rates = np.repeat(cpus_by_second, SAMPLES_PER_S) * 100_000.0
    received_us = np.concatenate(([0.0], np.cumsum(rates)))
    progress_us = np.linspace(
        0.0, progress * 100_000 * len(rates), len(rates) + 1
    )
    return VmRecord(received_us, progress_us, latency_us)


def steady(**kwargs):
    return record(*[1.0] * 60, **kwargs)


def vm(name='a', opted_in=False):
    return VmSpec(name, 'busy', programs.Run(), 2, opted_in)


def result(ours, *stock, opted_in=False):
    return fairness._compare_vm(vm(opted_in=opted_in), stock, ours)


class TestWindows(base.TestCase):
    def test_windows_begin_at_every_sample(self):
        series = record(*[1.0] * 20, *[0.5] * 5, *[1.0] * 15).received_us
        rates = measurement.windows(series, 10_000_000)
        self.assertEqual(301, len(rates))
        self.assertAlmostEqual(0.75, rates.min())
        self.assertAlmostEqual(
            0.5, measurement.windows(series, 2_000_000).min()
        )
        self.assertAlmostEqual(37.5 / 40, measurement.mean(series))

    def test_window_longer_than_the_measurement(self):
        rates = measurement.windows(record(1.0, 1.0).received_us, 10_000_000)
        self.assertEqual([1.0], rates.tolist())


class TestVmResult(base.TestCase):
    def test_starved_for_two_seconds_only(self):
        one = result(record(*[1.0] * 30, *[0.8] * 2, *[1.0] * 28), steady())
        self.assertAlmostEqual(0.96, one.long_part)
        self.assertAlmostEqual(0.8, one.short_part)
        self.assertTrue(one.below_090)
        self.assertFalse(one.below_095)

    def test_starved_for_long(self):
        one = result(record(*[0.93] * 60), steady())
        self.assertTrue(one.below_095)
        self.assertFalse(one.below_090)

    def test_as_bad_as_the_worst_window_under_stock_linux(self):
        noisy = record(*[1.0] * 30, *[0.7] * 10, *[1.0] * 20)
        one = result(noisy, steady(), noisy)
        self.assertGreaterEqual(one.long_part, 1.0)

    def test_noise_of_stock_linux_is_no_fault(self):
        stock = record(*[1.1, 1.0, 0.9, 1.0] * 15)
        one = result(record(*[0.95] * 2, *[1.0] * 58), stock, stock)
        self.assertFalse(one.below_090)
        self.assertTrue(
            result(record(*[0.95] * 2, *[0.8] * 58), stock, stock).below_095
        )

    def test_slower_than_under_stock_linux_is_worse_off(self):
        stock = steady(progress=0.3), steady(progress=0.3)
        for progress, expected in ((0.293, True), (0.295, False)):
            ours = steady(progress=progress)
            self.assertEqual(
                expected, result(ours, *stock, opted_in=True).is_worse_off
            )
            self.assertFalse(result(ours, *stock).is_worse_off)

    def test_progress_within_noise_is_not_worse(self):
        stock = steady(progress=0.2), steady(progress=0.4)
        for progress, expected in ((0.2, False), (0.17, True)):
            one = result(steady(progress=progress), *stock, opted_in=True)
            self.assertEqual(expected, one.is_worse_off)

    def test_two_faces_under_stock_linux(self):
        stock = record(*[1.0] * 60), record(*[2.0] * 60)
        self.assertFalse(result(record(*[1.0] * 60), *stock).below_095)
        self.assertTrue(result(record(*[0.8] * 60), *stock).below_095)

    def test_latency_is_compared_with_the_greater_one(self):
        ours = steady(latency_us=2_200.0)
        stock = steady(latency_us=1_000.0), steady(latency_us=2_000.0)
        self.assertAlmostEqual(1.1, result(ours, *stock).latency_ratio)
        self.assertIsNone(result(ours, steady(), steady()).latency_ratio)

    def test_least_latencies_are_not_compared(self):
        stock = steady(latency_us=1.0)
        one = result(steady(latency_us=150.0), stock, stock)
        self.assertEqual(1.0, one.latency_ratio)


class TestCompare(base.TestCase):
    """Runs of a host, of which each is replaced by what it records."""

    def compare(self, ours, *stock):
        """Return the result of a VM, and the number of runs."""
        runs = [ours, *stock]
        spec = HostSpec('1', 4, (vm(),))
        with mock.patch.object(
            fairness.measurement,
            'measure',
            side_effect=[measurement.Record({'a': one}) for one in runs],
        ) as measure:
            host = fairness.compare(spec, 1, mock.Mock())
        seeds = {call.args[1] for call in measure.call_args_list}
        return host.vms[0], measure.call_count, seeds

    def test_two_runs_under_stock_linux_are_enough_if_none_is_harmed(self):
        one, runs, seeds = self.compare(steady(), steady(), steady())
        self.assertFalse(one.is_harmed)
        self.assertEqual((3, 2), (runs, len(seeds)))

    def test_state_of_the_host_that_a_later_run_shows_is_no_harm(self):
        low = record(*[0.8] * 60)
        stock = [steady()] * 5 + [low]
        one, runs, seeds = self.compare(low, *stock)
        self.assertFalse(one.is_harmed)
        self.assertEqual((7, 6), (runs, len(seeds)))

    def test_harm_that_no_run_shows_stays(self):
        one, _, _ = self.compare(record(*[0.8] * 60), *[steady()] * 6)
        self.assertTrue(one.is_harmed)


class TestSummary(base.TestCase):
    def summary(self, *results):
        host = HostSpec('1', 4, tuple(one.spec for one in results))
        return fairness.summary(
            [fairness.HostResult(host, results, windows_part=0.5)]
        )

    def test_counts_are_numbers_of_vms(self):
        figures = self.summary(
            result(record(*[0.5] * 60), steady()),
            result(record(*[0.92] * 60), steady()),
            result(steady(progress=0.1), steady(), opted_in=True),
        )
        self.assertEqual(3, figures['vms'])
        self.assertEqual(1, figures['opted_in'])
        self.assertAlmostEqual(0.5, figures['worst'])
        self.assertEqual(1, figures['below_090'])
        self.assertEqual(2, figures['below_095'])
        self.assertEqual(1, figures['worse_off'])

    def test_geometric_means_are_of_vms_that_opted_in(self):
        figures = self.summary(
            result(steady(progress=0.2), steady(progress=0.1), opted_in=True),
            result(steady(progress=0.8), steady(progress=0.1), opted_in=True),
            result(steady(progress=0.0), steady(progress=0.0)),
        )
        self.assertAlmostEqual(0.4, figures['progress_geomean'])
        self.assertAlmostEqual(0.1, figures['stock_geomean'])

    def test_spread_is_among_equal_vms(self):
        figures = self.summary(
            result(record(*[1.2] * 60), steady()),
            result(record(*[0.8] * 60), steady()),
            result(record(*[3.0] * 60), steady(), opted_in=True),
        )
        self.assertAlmostEqual(0.4, figures['equal_spread'])
        self.assertAlmostEqual(0.0, figures['stock_equal_spread'])
