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

"""Gang windows: which VMs are favoured when, what is left for others."""

import dataclasses

import hypothesis
from hypothesis import strategies

from nova_vhpc.control import model
from nova_vhpc.control.gang import policy as gang
from nova_vhpc.control.slices import base
from nova_vhpc.tests.unit.control.gang.policy_case import (
    APART,
    CONFIG,
    TICK_US,
    V1,
    V2,
    GangTestCase,
    busy,
    hog,
    vm,
    weighing,
)


class TestParticipants(GangTestCase):
    """Which VMs have windows, and under which conditions."""

    def test_three_equal_vms_are_favoured_a_third_of_the_time_each(self):
        windows = self.decide(vm('a'), vm('b'), vm('c')).windows
        for uuid in 'abc':
            self.assertAlmostEqual(1 / 3, self.part_favoured(windows, uuid), 3)

    def test_windows_are_wider_if_switches_are_late(self):
        for late_us, width_us in ((1_000, 50_000), (7_000, 200_000)):
            decision = self.decide(vm('a'), vm('b'), late_us=late_us)
            self.assertEqual(
                {width_us},
                {turn.width_us for turn in decision.windows.turns},
            )
            self.assertEqual(width_us, decision.vms['a'].slice_us)
            # Period and quota must stay at their original values.
            self.assertTrue(decision.vms['a'].by_windows)

    def test_no_windows_if_no_weight_is_writable(self):
        limits = model.ActuatorLimits(min_shares=2, max_shares=1)
        decision = self.decide(vm('a'), vm('b'), limits=limits)
        self.assertEqual(base.SliceDecision(), decision)

    def test_vms_on_the_same_cpus_are_favoured_one_at_a_time(self):
        windows = self.decide(vm('a'), vm('b'), vm('c')).windows
        self.assertEqual({1}, {len(turn.favoured) for turn in windows.turns})

    def test_favoured_vm_outweighs_all_others(self):
        for limits in (V1, V2):
            windows = self.decide(
                vm('a'), vm('b'), vm('c'), limits=limits
            ).windows
            for turn in windows.turns:
                (favoured,) = turn.favoured
                rest = sum(turn.shares.values()) - turn.shares[favoured]
                self.assertGreater(turn.shares[favoured], 5 * rest)

    def test_no_windows_for_the_only_vm_of_a_host(self):
        decision = self.decide(vm('a'))
        self.assertIsNone(decision.windows)
        self.assertEqual({}, decision.vms)

    def test_no_windows_for_vms_that_share_no_cpu(self):
        decision = self.decide(
            vm('a'),
            vm('b'),
            cpus=tuple(model.Cpu(n) for n in range(4)),
            pins={'a': APART, 'b': (frozenset({2}), frozenset({3}))},
        )
        self.assertIsNone(decision.windows)

    def test_sleeping_vm_has_no_window(self):
        windows = self.decide(
            vm('a'), vm('b'), vm('c', sample=busy(part=0.4))
        ).windows
        self.assertEqual({'a', 'b'}, set(windows.shares_after))

    def test_vm_with_one_idle_vcpu_has_no_window(self):
        lazy = dataclasses.replace(
            busy(), vcpu_run_us=(TICK_US / 2, 0.0), vcpu_wait_us=(5e4, 100.0)
        )
        windows = self.decide(vm('a'), vm('b', sample=lazy)).windows
        self.assertNotIn('b', windows.shares_after)

    def test_starved_vm_keeps_its_window(self):
        """Its counters stand still; the kernel adds a wait when it ends."""
        policy = gang.GangPolicy(CONFIG)
        starved = model.Sample(None, None, (0, 0), (0, 0), (0, 0), TICK_US)
        relieved = model.Sample(
            None, None, (1e3, 1e3), (9.9e5, 9.9e5), (1, 1), TICK_US
        )
        self.decide(vm('a'), vm('b', sample=starved), ticks=9, policy=policy)
        decision = self.decide(
            vm('a'), vm('b', sample=relieved), ticks=1, policy=policy
        )
        self.assertEqual({'a', 'b'}, set(decision.windows.shares_after))

    def test_windows_continue_after_a_short_sleep(self):
        policy = gang.GangPolicy(CONFIG)
        self.decide(vm('a'), vm('b'), ticks=30, policy=policy)
        decision = self.decide(
            vm('a'), vm('b', sample=busy(part=0.1)), ticks=3, policy=policy
        )
        self.assertIsNotNone(decision.windows)

    def test_pauses_continue_if_hog_sleeps_a_tenth_of_the_time(self):
        policy = gang.GangPolicy(CONFIG)
        self.decide(vm('a'), others=(hog('h'),), policy=policy)
        decision = self.decide(
            vm('a'), others=(hog('h', part=0.9),), policy=policy
        )
        self.assertTrue(
            any(not turn.favoured for turn in decision.windows.turns)
        )

    def test_vm_with_standing_counters_sleeps_only_after_a_while(self):
        """Until then it might be starved, which looks the same."""
        policy = gang.GangPolicy(CONFIG)
        idle = model.Sample(None, None, (0, 0), (0, 0), (0, 0), TICK_US)
        self.decide(vm('a'), vm('b'), ticks=30, policy=policy)
        for ticks, taking_part in ((15, True), (60, False)):
            decision = self.decide(
                vm('a'), vm('b', sample=idle), ticks=ticks, policy=policy
            )
            self.assertEqual(taking_part, decision.windows is not None)

    def test_windows_end_after_a_long_sleep(self):
        policy = gang.GangPolicy(CONFIG)
        self.decide(vm('a'), vm('b'), ticks=30, policy=policy)
        decision = self.decide(
            vm('a'), vm('b', sample=busy(part=0.1)), ticks=90, policy=policy
        )
        self.assertIsNone(decision.windows)

    def test_parallel_vms_without_measurements_have_windows(self):
        blind = model.Sample(elapsed_us=TICK_US)
        windows = self.decide(
            vm('a', sample=blind), vm('b', sample=blind)
        ).windows
        self.assertEqual({'a', 'b'}, set(windows.shares_after))

    def test_vm_in_io_pool_has_no_window(self):
        decision = self.decide(vm('a'), vm('b'), in_io_pool=('b',))
        names = (
            set(decision.windows.shares_after) if decision.windows else set()
        )
        self.assertNotIn('b', names)

    def test_shares_of_a_latency_vm_are_not_written(self):
        windows = self.decide(
            vm('a'), vm('b'), vm('w', workload=model.Workload.LATENCY)
        ).windows
        self.assertNotIn('w', windows.shares_after)

    def test_vm_without_pins_has_no_window(self):
        windows = self.decide(vm('a'), vm('b'), pins={'a': APART}).windows
        self.assertNotIn('b', windows.shares_after)

    def test_no_windows_for_vms_of_one_vcpu_without_cluster(self):
        one = {'vcpus': 1, 'sample': busy(1)}
        self.assertIsNone(
            self.decide(
                vm('a', **one),
                vm('b', **one),
                pins={'a': APART[:1], 'b': APART[:1]},
            ).windows
        )


class TestClusters(GangTestCase):
    """Windows of the members of a cluster on one host."""

    ONE = {'vcpus': 1, 'sample': busy(1)}

    def test_members_on_disjoint_cpus_share_a_window(self):
        windows = self.decide(
            vm('p', cluster='x', **self.ONE),
            vm('q', cluster='x', **self.ONE),
            vm('b'),
            pins={'p': APART[:1], 'q': APART[1:], 'b': APART},
        ).windows
        self.assertEqual(
            {frozenset({'p', 'q'}), frozenset({'b'})},
            {turn.favoured for turn in windows.turns},
        )

    def test_members_on_the_same_cpus_have_a_window_each(self):
        windows = self.decide(
            vm('p', cluster='x'), vm('q', cluster='x')
        ).windows
        self.assertEqual(
            {frozenset({'p'}), frozenset({'q'})},
            {turn.favoured for turn in windows.turns},
        )

    def test_hosts_with_the_same_clusters_favour_the_same_at_each_time(self):
        here = self.decide(
            vm('1', cluster='x'), vm('2', cluster='y'), vm('3', cluster='z')
        ).windows
        there = self.decide(
            vm('9', cluster='z'), vm('8', cluster='y'), vm('7', cluster='x')
        ).windows
        cluster = {'1': 'x', '2': 'y', '3': 'z', '7': 'x', '8': 'y', '9': 'z'}
        for wall_us in range(0, 2 * here.cycle_us, 7_000):
            favoured = [
                {cluster[u] for u in w.turns[w.turn_at(wall_us)[0]].favoured}
                for w in (here, there)
            ]
            self.assertEqual(favoured[0], favoured[1])

    def test_vms_on_disjoint_cpus_have_windows_at_the_same_time(self):
        far = (frozenset({2}), frozenset({3}))
        windows = self.decide(
            *(vm(name) for name in 'abcd'),
            cpus=tuple(model.Cpu(n) for n in range(4)),
            pins={'a': APART, 'b': APART, 'c': far, 'd': far},
        ).windows
        for name in 'abcd':
            self.assertAlmostEqual(0.5, self.part_favoured(windows, name), 2)


class TestOthers(GangTestCase):
    """VMs without windows keep their fair share."""

    def part_of_pauses(self, windows):
        return (
            1
            - sum(turn.width_us for turn in windows.turns if turn.favoured)
            / windows.cycle_us
        )

    def part_of_hogs(self, windows, weight):
        """Return the CPU time, as a part, of VMs that run on every CPU.

        :param weight: sum of the hogs' shares.
        """
        return (
            sum(
                turn.width_us * weight / (weight + sum(turn.shares.values()))
                for turn in windows.turns
            )
            / windows.cycle_us
        )

    def test_hogs_get_their_fair_part(self):
        for number in (1, 2, 4, 8):
            for favour in (4, 40, 100):
                windows = self.decide(
                    vm('a'),
                    vm('b'),
                    others=tuple(hog(str(n)) for n in range(number)),
                    config=dataclasses.replace(CONFIG, gang_favour=favour),
                ).windows
                fair = number / (number + 2)
                part = self.part_of_hogs(windows, number * 1024)
                self.assertAlmostEqual(fair, part, delta=0.03)

    def test_hogs_get_all_time_in_pauses_if_gang_favour_is_1000(self):
        windows = self.decide(
            vm('a'),
            vm('b'),
            others=(hog('h'), hog('i')),
            config=dataclasses.replace(CONFIG, gang_favour=1000),
        ).windows
        self.assertAlmostEqual(0.5, self.part_of_pauses(windows), delta=0.02)

    def test_one_gang_beside_a_hog_has_windows_and_pauses(self):
        windows = self.decide(vm('a'), others=(hog('h'),)).windows
        self.assertEqual({'a'}, set(windows.shares_after))
        self.assertGreater(self.part_of_pauses(windows), 0.4)

    def test_shares_of_unmanaged_vms_are_not_written(self):
        windows = self.decide(vm('a'), vm('b'), others=(hog('h'),)).windows
        self.assertEqual({'a', 'b'}, set(windows.shares_after))

    def test_parallel_vms_weigh_almost_nothing_in_a_pause(self):
        windows = self.decide(vm('a'), vm('b'), others=(hog('h'),)).windows
        pauses = [turn for turn in windows.turns if not turn.favoured]
        self.assertTrue(pauses)
        for turn in pauses:
            self.assertLess(sum(turn.shares.values()), 1024 / 10)

    def test_no_pause_for_a_vm_that_mostly_sleeps(self):
        windows = self.decide(
            vm('a'), vm('b'), others=(hog('w', part=0.02),)
        ).windows
        self.assertEqual(0, self.part_of_pauses(windows))

    def test_gangs_keep_their_total_weight_until_a_new_hog_is_known(self):
        """That is the sum of their original shares."""
        windows = self.decide(
            vm('a'), vm('b'), others=(hog('h'),), ticks=10
        ).windows
        for turn in windows.turns:
            self.assertLessEqual(sum(turn.shares.values()), 2 * 1024 * 1.05)

    def test_gangs_keep_their_total_weight_beside_a_sleeping_vm(self):
        windows = self.decide(
            vm('a'), vm('b'), others=(hog('w', part=0.5),)
        ).windows
        for turn in windows.turns:
            self.assertLessEqual(sum(turn.shares.values()), 2 * 1024 * 1.05)

    def test_no_pause_for_a_busy_latency_vm(self):
        windows = self.decide(
            vm('a'), vm('b'), vm('w', workload=model.Workload.LATENCY)
        ).windows
        self.assertEqual(0, self.part_of_pauses(windows))

    def test_no_pause_if_hogs_fit_on_cpus_without_gangs(self):
        windows = self.decide(
            vm('a'),
            vm('b'),
            others=(hog('h'),),
            cpus=tuple(model.Cpu(n) for n in range(4)),
        ).windows
        self.assertEqual(0, self.part_of_pauses(windows))

    def test_no_pause_for_a_managed_vm_on_dedicated_cpus(self):
        away = vm(
            'd',
            workload=model.Workload.GENERAL,
            repin=False,
            allowed_cpus=frozenset({8, 9}),
        )
        self.assertEqual(
            self.decide(vm('a'), vm('b')).windows,
            self.decide(vm('a'), vm('b'), away).windows,
        )
        here = dataclasses.replace(away, allowed_cpus=frozenset({1, 9}))
        windows = self.decide(vm('a'), vm('b'), here).windows
        self.assertFalse(all(turn.favoured for turn in windows.turns))

    def test_no_pause_for_the_dedicated_vcpus_of_a_mixed_vm(self):
        """As with ``hw:cpu_policy=mixed``."""
        shared, own = (frozenset({0, 1}),), (frozenset({8}), frozenset({9}))
        mixed = vm(
            'm',
            vcpus=3,
            workload=model.Workload.GENERAL,
            repin=False,
            allowed_cpus=frozenset({0, 1}),
        )
        for pins, run_us, pauses in (
            (own + shared, (TICK_US, TICK_US, 0.0), False),
            (own + shared, (0.0, 0.0, TICK_US), True),
            (shared + own, (TICK_US, 0.0, 0.0), True),
            # It is unknown where the vCPUs run.
            (None, (TICK_US, TICK_US, 0.0), True),
        ):
            sample = model.Sample(
                vcpu_run_us=run_us, vcpu_wait_us=(0.0,) * 3, elapsed_us=TICK_US
            )
            busy_one = dataclasses.replace(
                mixed,
                sample=sample,
                in_force=model.CpuTune(vcpu_pins=pins),
            )
            windows = self.decide(vm('a'), vm('b'), busy_one).windows
            self.assertEqual(pauses, self.part_of_pauses(windows) > 0, pins)

    def test_shared_vcpus_of_a_mixed_vm_count_on_their_numa_node(self):
        """With a NUMA topology Nova pins shared vCPUs to one node."""
        one_node = frozenset({2, 3})
        pins = {
            'a': (frozenset({0}), frozenset({1})),
            'b': (frozenset({0}), frozenset({1})),
            'c': (frozenset({2}), frozenset({3})),
            'd': (frozenset({2}), frozenset({3})),
        }
        anywhere = hog('m')
        plain = dataclasses.replace(anywhere, vcpu_pins=(one_node,) * 2)
        mixed = vm(
            'm',
            vcpus=3,
            workload=model.Workload.GENERAL,
            repin=False,
            allowed_cpus=one_node,
            in_force=model.CpuTune(
                vcpu_pins=(frozenset({8}), one_node, one_node)
            ),
        )
        gangs = [vm(uuid) for uuid in pins]
        cpus = tuple(model.Cpu(n) for n in range(4))
        expected = self.decide(*gangs, others=(plain,), pins=pins, cpus=cpus)
        everywhere = self.decide(
            *gangs, others=(anywhere,), pins=pins, cpus=cpus
        )
        decision = self.decide(*gangs, mixed, pins=pins, cpus=cpus)
        self.assertEqual(expected.windows, decision.windows)
        self.assertNotEqual(everywhere.windows, decision.windows)

    def test_no_pause_for_a_hog_of_little_weight(self):
        for shares, pauses in ((100, False), (400, True)):
            windows = self.decide(
                vm('a'), vm('b'), others=(hog('h', shares=shares),)
            ).windows
            self.assertEqual(pauses, self.part_of_pauses(windows) > 0)

    def test_pauses_are_longer_for_a_heavier_hog(self):
        light = self.decide(vm('a'), others=(hog('h'),)).windows
        heavy = self.decide(vm('a'), others=(hog('h', shares=4096),)).windows
        self.assertGreater(
            self.part_of_pauses(heavy), self.part_of_pauses(light)
        )

    def test_schedule_stays_while_demand_varies_by_three_percent(self):
        """A new one in each tick would end the alignment between hosts."""
        policy = gang.GangPolicy(CONFIG)
        widths = set()
        for tick in range(90):
            part = 0.97 + 0.03 * (tick % 2)
            decision = self.decide(
                vm('a'),
                vm('b'),
                others=(hog('h', part=part),),
                ticks=1,
                policy=policy,
            )
            if tick > 40:
                widths.add(tuple(t.width_us for t in decision.windows.turns))
        self.assertEqual(1, len(widths))

    def test_decision_is_the_same_object_until_the_vms_change(self):
        """A schedule can be large, and a tick comes every 100 ms."""
        policy = gang.GangPolicy(CONFIG)
        steady, again = (
            self.decide(
                vm('a'), vm('b'), others=(hog('h'),), ticks=t, policy=policy
            )
            for t in (40, 1)
        )
        self.assertIs(steady, again)
        for changed in (
            {'original': weighing(512)},
            {'original': weighing(2_048)},
            {'vcpus': 1},
        ):
            self.assertIsNot(
                again,
                self.decide(
                    vm('a'),
                    vm('b', **changed),
                    others=(hog('h'),),
                    ticks=1,
                    policy=policy,
                ),
            )

    def test_windows_follow_weight_cluster_and_pins(self):
        cpus = tuple(model.Cpu(number) for number in range(4))
        left, right = APART, (frozenset({2}), frozenset({3}))
        middle = (frozenset({1}), frozenset({2}))
        policy = gang.GangPolicy(CONFIG)
        windows = set()
        for heavy, cluster, place in (
            (1_024, None, right),
            (2_048, None, right),
            (1_024, 'x', right),
            (1_024, 'x', middle),
        ):
            vms = (
                vm('a', cluster=cluster),
                vm('b', cluster=cluster),
                vm('c', original=weighing(heavy)),
            )
            pins = {'a': left, 'b': place, 'c': middle}
            kept, fresh = (
                self.decide(*vms, cpus=cpus, pins=pins, policy=one).windows
                for one in (policy, None)
            )
            self.assertEqual(fresh, kept)
            windows.add(repr(kept))
        self.assertEqual(4, len(windows))

    def test_sleeping_vm_is_unpinned_with_and_without_windows(self):
        asleep = vm('z', sample=busy(part=0.3))
        for vms in ((vm('a'), asleep), (vm('a'), vm('b'), asleep)):
            decision = self.decide(*vms, ticks=60)
            self.assertEqual(len(vms) > 2, decision.windows is not None)
            self.assertEqual({'z'}, decision.loose)

    def test_only_gangs_on_the_cpus_of_a_hog_pause(self):
        cpus = tuple(model.Cpu(number) for number in range(4))
        far = (frozenset({2}), frozenset({3}))
        windows = self.decide(
            vm('a'),
            vm('b'),
            vm('c'),
            vm('d'),
            cpus=cpus,
            pins={'a': APART, 'b': APART, 'c': far, 'd': far},
            others=(
                dataclasses.replace(
                    hog('h'), vcpu_pins=(frozenset({0, 1}),) * 2
                ),
            ),
        ).windows
        for uuid, least, most in (('a', 0.1, 0.4), ('c', 0.49, 0.51)):
            part = self.part_favoured(windows, uuid)
            self.assertTrue(least < part < most, (uuid, part))

    def test_weights_follow_changed_limits(self):
        policy = gang.GangPolicy(CONFIG)
        for limits in (V1, V2, V1):
            windows = self.decide(
                vm('a', original=weighing(9_999)),
                vm('b', original=weighing(9_999)),
                limits=limits,
                policy=policy,
            ).windows
            self.assertEqual(
                min(2 * 9_999, limits.max_shares),
                max(max(turn.shares.values()) for turn in windows.turns),
            )


class TestShares(GangTestCase):
    """Weights in windows, and original shares."""

    def test_original_shares_are_restored_afterwards(self):
        windows = self.decide(
            vm('a', original=model.CpuTune(100_000, -1, 300)), vm('b')
        ).windows
        self.assertEqual({'a': 300, 'b': 1024}, windows.shares_after)

    def test_unknown_original_shares_are_the_cgroup_default(self):
        unknown = model.CpuTune()
        for limits, default in ((V1, 1024), (V2, 100)):
            windows = self.decide(
                vm('a', original=unknown),
                vm('b', original=unknown),
                limits=limits,
            ).windows
            self.assertEqual(
                {'a': default, 'b': default}, windows.shares_after
            )

    @hypothesis.given(
        names=strategies.lists(
            strategies.sampled_from('abcdef'),
            unique=True,
            min_size=1,
            max_size=4,
        ),
        apart=strategies.integers(0, 2),
        shares=strategies.sampled_from((1, 100, 1024, 10_000, 262_144)),
        hogs=strategies.lists(strategies.integers(1, 3), max_size=3),
        hog_shares=strategies.sampled_from((1, 100, 1024, 262_144)),
        v2=strategies.booleans(),
        window_us=strategies.integers(5_000, 1_000_000),
    )
    @hypothesis.settings(deadline=None)
    def test_every_schedule_has_writable_weights_and_a_window_per_gang(
        self, names, apart, shares, hogs, hog_shares, v2, window_us
    ):
        """
        :param apart: number of VMs on other CPUs than the rest.
        """
        limits = V2 if v2 else V1
        windows = self.decide(
            *(
                vm(name, original=model.CpuTune(100_000, -1, shares))
                for name in names
            ),
            others=tuple(
                hog(f'h{n}', vcpus, hog_shares) for n, vcpus in enumerate(hogs)
            ),
            limits=limits,
            cpus=tuple(model.Cpu(n) for n in range(4 if apart else 2)),
            pins={
                name: (frozenset({2}), frozenset({3})) if n < apart else APART
                for n, name in enumerate(names)
            },
            # A VM counts as never sleeping only after 20 ticks or so.
            ticks=25,
            config=dataclasses.replace(CONFIG, gang_window_us=window_us),
        ).windows
        if windows is None:
            # Two VMs on the same CPUs would have to take turns.
            self.assertLess(min(apart, len(names)), 2)
            self.assertLess(len(names) - apart, 2)
            return
        for turn in windows.turns:
            self.assertGreater(turn.width_us, 0)
            self.assertEqual(windows.shares_after.keys(), turn.shares.keys())
            for value in turn.shares.values():
                self.assertIs(int, type(value))
                self.assertLessEqual(limits.min_shares, value)
                self.assertGreaterEqual(limits.max_shares, value)
        for name in windows.shares_after:
            self.assertGreater(self.part_favoured(windows, name), 0)
