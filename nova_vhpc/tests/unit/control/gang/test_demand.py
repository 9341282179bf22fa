# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Which VMs spin, and how many CPUs each VM demands."""

from nova_vhpc.control import model
from nova_vhpc.control.gang import demand
from nova_vhpc.tests import base

TICK_US = 100_000.0


class DemandTestCase(base.TestCase):
    def setUp(self):
        super().setUp()
        self.tracker = demand.DemandTracker()

    def show(self, *vcpus, ticks=200):
        """
        :param vcpus: run and wait of each, as parts of the time.
        """
        self.show_sample(
            len(vcpus),
            ticks,
            vcpu_run_us=tuple(run * TICK_US for run, _ in vcpus),
            vcpu_wait_us=tuple(wait * TICK_US for _, wait in vcpus),
            elapsed_us=TICK_US,
        )

    def show_sample(self, vcpus, ticks=1, **sample):
        for _ in range(ticks):
            self.tracker.advance(
                [model.OtherVm('o', vcpus, sample=model.Sample(**sample))]
            )


class TestSpinning(DemandTestCase):
    def test_least_runnable_vcpu_decides_whether_vm_spins(self):
        self.show((0.5, 0.5), (0.3, 0.7))
        self.assertTrue(self.tracker.is_spinning('o'))
        self.show((0.5, 0.5), (0.3, 0.1))
        self.assertFalse(self.tracker.is_spinning('o'))

    def test_between_both_thresholds_nothing_changes(self):
        self.show((0.4, 0.35))
        self.assertFalse(self.tracker.is_spinning('o'))
        self.show((0.4, 0.6))
        self.assertTrue(self.tracker.is_spinning('o'))
        self.show((0.4, 0.35))
        self.assertTrue(self.tracker.is_spinning('o'))

    def test_vcpu_waiting_for_a_cpu_does_not_count_as_sleeping(self):
        # The kernel adds a wait to the counters when it is over.
        self.show((0.5, 0.5))
        for _ in range(10):
            self.show((0.0, 0.0), ticks=9)
            self.assertTrue(self.tracker.is_spinning('o'))
            self.show((0.0, 10.0), ticks=1)
            self.assertTrue(self.tracker.is_spinning('o'))

    def test_vcpu_asleep_for_long_ends_spinning(self):
        self.show((0.5, 0.5))
        self.show((0.0, 0.0), ticks=60)
        self.assertFalse(self.tracker.is_spinning('o'))

    def test_unclear_time_is_counted_once(self):
        for _ in range(40):
            self.show((0.0, 0.0), ticks=4)
            self.show((0.5, 4.5), ticks=1)
        self.assertTrue(self.tracker.is_spinning('o'))
        self.assertAlmostEqual(0.1, self.tracker.busiest_vcpu('o'), places=6)
        for _ in range(40):
            self.show((0.0, 0.0), ticks=4)
            self.show((0.5, 0.0), ticks=1)
        self.assertFalse(self.tracker.is_spinning('o'))

    def test_missing_measurements_change_nothing(self):
        for run, wait in ((0.2, 0.1), (0.5, 0.5)):
            self.show((run, wait))
            spun, cpus = self.tracker.is_spinning('o'), self.tracker.cpus('o')
            self.show_sample(1, ticks=5)
            self.assertIs(spun, self.tracker.is_spinning('o'))
            self.assertEqual(cpus, self.tracker.cpus('o'))

    def test_unmeasured_vm_does_not_count_as_spinning(self):
        for measured in (
            {},
            {'vcpu_run_us': (TICK_US / 2,)},
            {'vcpu_wait_us': (TICK_US / 2,)},
        ):
            self.show((0.5, 0.5))
            self.assertFalse(self.tracker.is_unmeasured('o'))
            self.show_sample(1, elapsed_us=TICK_US, **measured)
            self.assertTrue(self.tracker.is_unmeasured('o'))
            self.assertFalse(self.tracker.is_spinning('o'))
            self.show((0.5, 0.5), ticks=1)
            self.assertFalse(self.tracker.is_unmeasured('o'))
            self.assertTrue(self.tracker.is_spinning('o'))


class TestDemand(DemandTestCase):
    def test_spinning_vcpu_demands_a_cpu_sleeping_one_its_use(self):
        self.show((0.3, 0.7), (0.3, 0.3))
        self.assertAlmostEqual(1.3, self.tracker.cpus('o'), places=6)

    def test_used_cpus_are_what_vcpus_ran(self):
        self.show((0.3, 0.7), (0.25, 0.3))
        self.assertAlmostEqual(0.55, self.tracker.used_cpus('o'), places=6)
        self.show_sample(3)
        self.assertEqual(0.0, self.tracker.used_cpus('o'))

    def test_busiest_vcpu_is_a_part_of_the_time(self):
        self.assertRaises(KeyError, self.tracker.busiest_vcpu, 'o')
        self.show_sample(2)
        self.assertEqual(0.0, self.tracker.busiest_vcpu('o'))
        self.show((0.3, 0.7), (0.4, 0.1))
        self.assertAlmostEqual(0.4, self.tracker.busiest_vcpu('o'), places=6)
        # Measured at other times than the period is.
        self.show((1.01, 0.0), (0.0, 0.0))
        self.assertEqual(1.0, self.tracker.busiest_vcpu('o'))

    def test_vcpus_that_have_not_slept_for_long_are_cpu_bound(self):
        for vcpus, cpu_bound in (
            (((0.5, 0.5), (0.1, 0.1)), [0]),
            (((0.5, 0.5), (0.5, 0.5)), [0, 1]),
            # A little less is neither.
            (((0.5, 0.5), (0.5, 0.4)), [0, 1]),
            (((0.2, 0.2), (0.5, 0.4)), [1]),
        ):
            self.show(*vcpus)
            self.assertEqual(cpu_bound, self.tracker.cpu_bound_vcpus('o'))
            self.assertTrue(self.tracker.is_cpu_bound('o'))

    def test_vm_is_cpu_bound_only_after_some_time(self):
        self.show((0.5, 0.5), ticks=19)
        self.assertFalse(self.tracker.is_cpu_bound('o'))
        self.show((0.5, 0.5), ticks=1)
        self.assertTrue(self.tracker.is_cpu_bound('o'))

    def test_vm_with_other_vcpus_is_measured_anew(self):
        self.show((0.5, 0.5))
        self.show((0.5, 0.5), (0.5, 0.5), ticks=1)
        self.assertFalse(self.tracker.is_cpu_bound('o'))
