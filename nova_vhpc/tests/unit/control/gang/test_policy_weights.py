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

"""Gang windows: weights of the VMs, widths of the windows."""

import functools
import itertools

from nova_vhpc.control import model
from nova_vhpc.control.gang import policy as gang
from nova_vhpc.tests.unit.control.gang.policy_case import (
    APART,
    CONFIG,
    GangTestCase,
    hog,
    vm,
    weighing,
)

FOUR_CPUS = tuple(model.Cpu(n) for n in range(4))
FAR = (frozenset({2}), frozenset({3}))


class TestBesideHogs(GangTestCase):
    """VMs that never sleep get pauses, and are outweighed in windows."""

    def weight(self, *others):
        """Return the weight of the favoured of two VMs (300, 1024 shares)."""
        windows = self.decide(
            vm('a', original=weighing(300)), vm('b'), others=others
        ).windows
        (weight,) = {
            turn.shares[uuid]
            for turn in windows.turns
            for uuid in turn.favoured
        }
        return weight

    def test_favoured_gang_weighs_gang_favour_times_the_heaviest_hog(self):
        self.assertEqual(
            CONFIG.gang_favour * 4_096, self.weight(hog('h', shares=4_096))
        )

    def test_sleeping_vm_can_get_three_times_the_time_it_uses(self):
        # Its vCPUs run for 15% of the time; a gang has two CPUs.
        weight = self.weight(hog('h'), hog('w', part=0.3))
        self.assertAlmostEqual(3 * 0.15, 1_024 / (1_024 + weight / 2), 2)

    def test_schedule_stays_if_a_sleeping_vm_varies_slightly(self):
        # Otherwise weights would be written in each tick beside any busy VM.
        policy = gang.GangPolicy(CONFIG)
        policy_decides = functools.partial(
            self.decide, vm('a'), vm('b'), policy=policy
        )
        schedules = [
            policy_decides(
                others=(hog('h'), hog('w', part=0.1 + 0.01 * (tick % 3))),
                ticks=1 if tick else 40,
            ).windows
            for tick in range(30)
        ]
        self.assertEqual([schedules[0]] * 30, schedules)

    def test_schedule_seldom_changes_if_a_sleeping_vm_varies_much(self):
        # It runs a quarter of the time on average; the CPU time that it leaves
        # varies by a factor of two, and pauses would vary with it.
        policy = gang.GangPolicy(CONFIG)
        self.decide(
            vm('a'), vm('b'), policy=policy, others=(hog('h'),), ticks=40
        )
        schedules = [
            self.decide(
                vm('a'),
                vm('b'),
                policy=policy,
                others=(
                    hog('h'),
                    hog('w', 2, 4_096, 0.8 if tick // 8 % 2 else 0.2),
                ),
                ticks=1,
            ).windows
            for tick in range(240)
        ]
        changes = [
            before != now for before, now in itertools.pairwise(schedules)
        ]
        self.assertLess(sum(changes[-160:]), 10)

    def test_gangs_keep_their_total_weight_beside_a_busy_sleeper(self):
        self.assertEqual(
            300 + 1_024, self.weight(hog('h'), hog('w', part=0.8))
        )

    def test_time_left_by_a_sleeping_vm_is_divided_fairly(self):
        # The hog and the gang get a CPU each, less the time that the sleeping
        # VM uses, also in pauses. Whether that VM is managed is irrelevant.
        sleeper = hog('w', part=0.3)
        opted_in = vm(
            'w',
            workload=model.Workload.GENERAL,
            sample=sleeper.sample,
        )
        for vms, others in (((), (sleeper,)), ((opted_in,), ())):
            windows = self.decide(
                vm('a'), *vms, others=(hog('h'), *others)
            ).windows
            hogs = sum(
                turn.width_us * 1_024 / (1_024 + sum(turn.shares.values()))
                for turn in windows.turns
            )
            self.assertAlmostEqual(
                (2 - 0.3) / 2,
                (2 - 0.3) * hogs / windows.cycle_us,
                delta=0.03,
            )


class TestSideBySide(GangTestCase):
    """Two members of each of two clusters, on two of four CPUs each."""

    PLACES = {
        'p': APART,
        'q': FAR,
        'r': APART,
        's': FAR,
    }

    def windows(self, *others):
        return self.decide(
            vm('p', cluster='x'),
            vm('q', cluster='x'),
            vm('r', cluster='y'),
            vm('s', cluster='y'),
            others=others,
            cpus=FOUR_CPUS,
            pins=self.PLACES,
        ).windows

    def weights(self, windows):
        return {
            turn.shares[uuid]
            for turn in windows.turns
            for uuid in turn.favoured
        }

    def test_hogs_get_their_fair_part_beside_two_gangs_per_cluster(self):
        windows = self.windows(*(hog(str(n), vcpus=1) for n in range(4)))
        hogs = sum(
            # On each CPU run a hog, one vCPU of p and one of r.
            turn.width_us
            * 1_024
            / (1_024 + (turn.shares['p'] + turn.shares['r']) / 2)
            for turn in windows.turns
        )
        self.assertAlmostEqual(1 / 2, hogs / windows.cycle_us, delta=0.02)

    def test_sleeping_vm_can_get_three_times_the_time_it_uses(self):
        (weight,) = self.weights(
            self.windows(hog('h', vcpus=4), hog('w', part=0.1))
        )
        # Its vCPUs run for 5% of the time.
        self.assertAlmostEqual(3 * 0.05, 1_024 / (1_024 + weight / 2), 2)

    def test_gangs_keep_their_weight_per_cpu_beside_a_sleeping_vm(self):
        self.assertEqual(
            {2 * 1_024}, self.weights(self.windows(hog('w', part=0.5)))
        )

    def test_gang_that_shares_cpus_with_more_gangs_weighs_more(self):
        windows = self.decide(
            vm('a'),
            vm('b'),
            vm('c'),
            cpus=FOUR_CPUS,
            pins={
                'a': APART,
                'b': (frozenset({1}), frozenset({2})),
                'c': FAR,
            },
        ).windows
        self.assertEqual(
            {('a', 1_536), ('b', 2_048), ('c', 1_536)},
            {
                (uuid, turn.shares[uuid])
                for turn in windows.turns
                for uuid in turn.favoured
            },
        )


class TestAmongThemselves(GangTestCase):
    """Gangs share time in proportion to the weight of a vCPU."""

    def test_all_windows_have_a_width_beside_a_vm_of_two_shares(self):
        windows = self.decide(
            *(vm(name, original=weighing(262_144)) for name in 'abc'),
            vm('z', vcpus=8, original=weighing(2)),
            pins={
                **dict.fromkeys('abc', APART),
                'z': APART * 4,
            },
        ).windows
        for turn in windows.turns:
            self.assertGreater(turn.width_us, 0)

    def test_twice_the_shares_give_twice_the_time(self):
        windows = self.decide(
            vm('a', original=weighing(2_048)), vm('b')
        ).windows
        self.assertAlmostEqual(2 / 3, self.part_favoured(windows, 'a'), 3)

    def test_wider_vm_needs_more_shares_for_the_same_time(self):
        wide = vm('w', vcpus=4, original=weighing(2_048))
        windows = self.decide(
            wide,
            vm('a'),
            cpus=FOUR_CPUS,
            pins={'w': APART + FAR, 'a': FAR},
        ).windows
        self.assertAlmostEqual(1 / 2, self.part_favoured(windows, 'a'), 3)

    def test_two_members_in_one_window_get_the_time_of_one(self):
        one = {'vcpus': 1, 'cluster': 'x', 'original': weighing(512)}
        windows = self.decide(
            vm('p', **one),
            vm('q', **one),
            vm('b'),
            pins={
                'p': APART[:1],
                'q': APART[1:],
                'b': APART,
            },
        ).windows
        self.assertAlmostEqual(1 / 2, self.part_favoured(windows, 'p'), 3)

    def test_simultaneous_windows_keep_the_total_weight_of_gangs(self):
        windows = self.decide(
            *(vm(name) for name in 'abcd'),
            others=(hog('w', part=0.5),),
            cpus=FOUR_CPUS,
            pins={
                **dict.fromkeys('ab', APART),
                **dict.fromkeys('cd', FAR),
            },
        ).windows
        for turn in windows.turns:
            self.assertEqual(2, len(turn.favoured))
            self.assertLessEqual(sum(turn.shares.values()), 4 * 1_024 * 1.05)
