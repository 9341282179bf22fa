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

"""Gang windows: how much everybody weighs, and for how long."""

import functools
import itertools

from nova_vhpc.control import model
from nova_vhpc.control.gang import policy as gang
from nova_vhpc.tests.unit.control.gang import test_policy
from nova_vhpc.tests.unit.control.gang.test_policy import (
    CONFIG,
    hog,
    vm,
    weighing,
)

FOUR_CPUS = tuple(model.Cpu(n) for n in range(4))
FAR = (frozenset({2}), frozenset({3}))


class TestBesideHogs(test_policy.GangTestCase):
    """Others that never sleep have pauses, and are outweighed elsewhere."""

    def weight(self, *others):
        """Of the favoured one among two, of 300 and 1024 shares."""
        windows = self.decide(
            vm('a', original=weighing(300)), vm('b'), others=others
        ).windows
        (weight,) = {
            turn.shares[uuid]
            for turn in windows.turns
            for uuid in turn.favoured
        }
        return weight

    def test_as_many_times_the_heaviest_as_configured(self):
        self.assertEqual(
            CONFIG.gang_favour * 4_096, self.weight(hog('h', shares=4_096))
        )

    def test_who_sleeps_gets_three_times_what_it_uses(self):
        # Its vCPUs run for 15% of the time; a gang has two CPUs.
        weight = self.weight(hog('h'), hog('w', part=0.3))
        self.assertAlmostEqual(3 * 0.15, 1_024 / (1_024 + weight / 2), 2)

    def test_who_sleeps_a_little_more_or_less_changes_nothing(self):
        # Else weights are written anew each tick, beside any busy server.
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

    def test_windows_do_not_follow_each_breath_of_who_sleeps(self):
        # It runs for a quarter of the time, more or less: what it leaves may
        # be half as much or twice, and pauses would follow it.
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

    def test_beside_who_uses_much_gangs_weigh_what_they_always_weigh(self):
        self.assertEqual(
            300 + 1_024, self.weight(hog('h'), hog('w', part=0.8))
        )

    def test_what_sleepers_leave_is_divided_fairly(self):
        # A CPU for the hog and one for the gang, less what the sleeper
        # uses, in pauses, too; whether it has opted in makes no difference.
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


class TestSideBySide(test_policy.GangTestCase):
    """Two members of each of two clusters, on two of four CPUs each."""

    PLACES = {
        'p': test_policy.APART,
        'q': FAR,
        'r': test_policy.APART,
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

    def test_hogs_get_their_fair_part(self):
        windows = self.windows(*(hog(str(n), vcpus=1) for n in range(4)))
        hogs = sum(
            # A hog on each CPU, and there one vCPU of p's and one of r's.
            turn.width_us
            * 1_024
            / (1_024 + (turn.shares['p'] + turn.shares['r']) / 2)
            for turn in windows.turns
        )
        self.assertAlmostEqual(1 / 2, hogs / windows.cycle_us, delta=0.02)

    def test_who_sleeps_gets_three_times_what_it_uses(self):
        (weight,) = self.weights(
            self.windows(hog('h', vcpus=4), hog('w', part=0.1))
        )
        # Its vCPUs run for 5% of the time.
        self.assertAlmostEqual(3 * 0.05, 1_024 / (1_024 + weight / 2), 2)

    def test_beside_sleepers_gangs_weigh_on_a_cpu_what_they_always_do(self):
        self.assertEqual(
            {2 * 1_024}, self.weights(self.windows(hog('w', part=0.5)))
        )

    def test_who_reaches_over_more_gangs_weighs_more(self):
        windows = self.decide(
            vm('a'),
            vm('b'),
            vm('c'),
            cpus=FOUR_CPUS,
            pins={
                'a': test_policy.APART,
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


class TestAmongThemselves(test_policy.GangTestCase):
    """Gangs divide time by the weight of a vCPU."""

    def test_who_weighs_next_to_nothing_does_not_end_the_windows(self):
        windows = self.decide(
            *(vm(name, original=weighing(262_144)) for name in 'abc'),
            vm('z', vcpus=8, original=weighing(2)),
            pins={
                **dict.fromkeys('abc', test_policy.APART),
                'z': test_policy.APART * 4,
            },
        ).windows
        for turn in windows.turns:
            self.assertGreater(turn.width_us, 0)

    def test_twice_the_shares_twice_the_time(self):
        windows = self.decide(
            vm('a', original=weighing(2_048)), vm('b')
        ).windows
        self.assertAlmostEqual(2 / 3, self.part_favoured(windows, 'a'), 3)

    def test_a_wider_one_needs_more_shares_for_as_much_time(self):
        wide = vm('w', vcpus=4, original=weighing(2_048))
        windows = self.decide(
            wide,
            vm('a'),
            cpus=FOUR_CPUS,
            pins={'w': test_policy.APART + FAR, 'a': FAR},
        ).windows
        self.assertAlmostEqual(1 / 2, self.part_favoured(windows, 'a'), 3)

    def test_members_side_by_side_weigh_what_one_of_them_weighs(self):
        one = {'vcpus': 1, 'cluster': 'x', 'original': weighing(512)}
        windows = self.decide(
            vm('p', **one),
            vm('q', **one),
            vm('b'),
            pins={
                'p': test_policy.APART[:1],
                'q': test_policy.APART[1:],
                'b': test_policy.APART,
            },
        ).windows
        self.assertAlmostEqual(1 / 2, self.part_favoured(windows, 'p'), 3)

    def test_all_windows_at_a_time_weigh_what_gangs_always_weigh(self):
        windows = self.decide(
            *(vm(name) for name in 'abcd'),
            others=(hog('w', part=0.5),),
            cpus=FOUR_CPUS,
            pins={
                **dict.fromkeys('ab', test_policy.APART),
                **dict.fromkeys('cd', FAR),
            },
        ).windows
        for turn in windows.turns:
            self.assertEqual(2, len(turn.favoured))
            self.assertLessEqual(sum(turn.shares.values()), 4 * 1_024 * 1.05)
