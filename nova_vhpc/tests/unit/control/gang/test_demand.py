# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Who spins, and how much CPU everybody wants."""

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


class TestSpins(DemandTestCase):
    def test_the_laziest_vcpu_counts(self):
        self.show((0.5, 0.5), (0.3, 0.7))
        self.assertTrue(self.tracker.is_spinning('o'))
        self.show((0.5, 0.5), (0.3, 0.1))
        self.assertFalse(self.tracker.is_spinning('o'))

    def test_between_sleeping_and_not_nothing_changes(self):
        self.show((0.4, 0.35))
        self.assertFalse(self.tracker.is_spinning('o'))
        self.show((0.4, 0.6))
        self.assertTrue(self.tracker.is_spinning('o'))
        self.show((0.4, 0.35))
        self.assertTrue(self.tracker.is_spinning('o'))

    def test_who_starves_is_not_taken_to_sleep(self):
        # The kernel adds a wait to the counters when it is over.
        self.show((0.5, 0.5))
        for _ in range(10):
            self.show((0.0, 0.0), ticks=9)
            self.assertTrue(self.tracker.is_spinning('o'))
            self.show((0.0, 10.0), ticks=1)
            self.assertTrue(self.tracker.is_spinning('o'))

    def test_who_sleeps_at_last_does_not_spin(self):
        self.show((0.5, 0.5))
        self.show((0.0, 0.0), ticks=60)
        self.assertFalse(self.tracker.is_spinning('o'))

    def test_a_stretch_that_was_unclear_is_counted_once(self):
        for _ in range(40):
            self.show((0.0, 0.0), ticks=4)
            self.show((0.5, 4.5), ticks=1)
        self.assertTrue(self.tracker.is_spinning('o'))
        self.assertAlmostEqual(0.1, self.tracker.busiest_vcpu('o'), places=6)
        for _ in range(40):
            self.show((0.0, 0.0), ticks=4)
            self.show((0.5, 0.0), ticks=1)
        self.assertFalse(self.tracker.is_spinning('o'))

    def test_a_hole_in_the_measurements_changes_nothing(self):
        for run, wait in ((0.2, 0.1), (0.5, 0.5)):
            self.show((run, wait))
            spun, cpus = self.tracker.is_spinning('o'), self.tracker.cpus('o')
            self.show_sample(1, ticks=5)
            self.assertIs(spun, self.tracker.is_spinning('o'))
            self.assertEqual(cpus, self.tracker.cpus('o'))

    def test_whose_host_cannot_tell_is_believed(self):
        self.show((0.2, 0.1))
        self.show_sample(1, elapsed_us=TICK_US)
        self.assertTrue(self.tracker.is_spinning('o'))
        self.show((0.2, 0.1), ticks=1)
        self.assertFalse(self.tracker.is_spinning('o'))


class TestWants(DemandTestCase):
    def test_who_never_sleeps_wants_a_cpu_and_who_does_what_it_used(self):
        self.show((0.3, 0.7), (0.3, 0.3))
        self.assertAlmostEqual(1.3, self.tracker.cpus('o'), places=6)

    def test_the_busiest_runs_for_a_part_of_the_time(self):
        self.assertRaises(KeyError, self.tracker.busiest_vcpu, 'o')
        self.show_sample(2)
        self.assertEqual(0.0, self.tracker.busiest_vcpu('o'))
        self.show((0.3, 0.7), (0.4, 0.1))
        self.assertAlmostEqual(0.4, self.tracker.busiest_vcpu('o'), places=6)
        # Measured at other times than the period is.
        self.show((1.01, 0.0), (0.0, 0.0))
        self.assertEqual(1.0, self.tracker.busiest_vcpu('o'))

    def test_awake_are_those_that_have_not_slept_for_long(self):
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

    def test_nobody_is_awake_before_it_was_so_for_long(self):
        self.show((0.5, 0.5), ticks=19)
        self.assertFalse(self.tracker.is_cpu_bound('o'))
        self.show((0.5, 0.5), ticks=1)
        self.assertTrue(self.tracker.is_cpu_bound('o'))

    def test_with_other_vcpus_it_is_another_one(self):
        self.show((0.5, 0.5))
        self.show((0.5, 0.5), (0.5, 0.5), ticks=1)
        self.assertFalse(self.tracker.is_cpu_bound('o'))
