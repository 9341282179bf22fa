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


"""Gang windows: who is favoured when, and what is left for others."""

import dataclasses

import hypothesis
from hypothesis import strategies

from nova_vhpc.control import config as control_config
from nova_vhpc.control import model
from nova_vhpc.control.gang import policy as gang
from nova_vhpc.control.slices import base
from nova_vhpc.tests import base as tests_base

TICK_US = 100_000
CONFIG = control_config.ControlConfig()
V1 = model.ActuatorLimits(min_shares=2, max_shares=262_144)
V2 = model.ActuatorLimits(min_shares=1, max_shares=10_000)
TWO_CPUS = (model.Cpu(0), model.Cpu(1))
APART = (frozenset({0}), frozenset({1}))


def busy(vcpus=2, part=1.0):
    """Half running, half waiting, for that part of the time."""
    half = TICK_US * part / 2
    return model.Sample(
        vcpu_run_us=(half,) * vcpus,
        vcpu_wait_us=(half,) * vcpus,
        vcpu_runs=(10,) * vcpus,
        elapsed_us=TICK_US,
    )


def vm(uuid, **changes):
    fields = {
        'vcpus': 2,
        'workload': model.Workload.PARALLEL,
        'original': model.CpuTune(100_000, -1, 1024),
        'sample': busy(changes.get('vcpus', 2)),
    }
    return model.VmView(uuid, **{**fields, **changes})


def weighing(shares):
    return model.CpuTune(100_000, -1, shares)


def hog(uuid, vcpus=2, shares=1024, part=1.0):
    return model.OtherVm(uuid, vcpus, shares, busy(vcpus, part))


class GangTestCase(tests_base.TestCase):
    """Shows a policy the same host for four seconds, then looks."""

    def decide(
        self,
        *vms,
        others=(),
        pins=None,
        in_io_pool=(),
        limits=V1,
        cpus=TWO_CPUS,
        ticks=40,
        policy=None,
        config=CONFIG,
        late_us=0.0,
    ):
        policy = policy or gang.GangPolicy(config)
        decision = None
        for tick in range(ticks):
            decision = policy.decide(
                base.SliceContext(
                    view=model.HostView(
                        tick,
                        tick * TICK_US,
                        TICK_US,
                        cpus,
                        vms,
                        limits=limits,
                        others=others,
                        window_late_us=late_us,
                    ),
                    phases={},
                    pins={one.uuid: APART for one in vms}
                    if pins is None
                    else pins,
                    in_io_pool=frozenset(in_io_pool),
                )
            )
        return decision

    def part_favoured(self, windows, uuid):
        """Part of the rotation in which a VM is favoured."""
        return (
            sum(t.width_us for t in windows.turns if uuid in t.favoured)
            / windows.cycle_us
        )


class TestWhoTakesPart(GangTestCase):
    """No windows without need."""

    def test_three_spinners_take_equal_turns(self):
        windows = self.decide(vm('a'), vm('b'), vm('c')).windows
        for uuid in 'abc':
            self.assertAlmostEqual(1 / 3, self.part_favoured(windows, uuid), 3)

    def test_windows_are_wider_where_borders_cost_more(self):
        for late_us, width_us in ((1_000, 50_000), (7_000, 200_000)):
            decision = self.decide(vm('a'), vm('b'), late_us=late_us)
            self.assertEqual(
                {width_us},
                {turn.width_us for turn in decision.windows.turns},
            )
            self.assertEqual(width_us, decision.vms['a'].slice_us)
            # Period and quota are to stay as they were.
            self.assertTrue(decision.vms['a'].by_windows)

    def test_none_where_no_weight_can_be_written(self):
        limits = model.ActuatorLimits(min_shares=2, max_shares=1)
        decision = self.decide(vm('a'), vm('b'), limits=limits)
        self.assertEqual(base.SliceDecision(), decision)

    def test_nobody_is_favoured_beside_another(self):
        windows = self.decide(vm('a'), vm('b'), vm('c')).windows
        self.assertEqual({1}, {len(turn.favoured) for turn in windows.turns})

    def test_the_favoured_one_outweighs_all_the_rest(self):
        for limits in (V1, V2):
            windows = self.decide(
                vm('a'), vm('b'), vm('c'), limits=limits
            ).windows
            for turn in windows.turns:
                (favoured,) = turn.favoured
                rest = sum(turn.shares.values()) - turn.shares[favoured]
                self.assertGreater(turn.shares[favoured], 5 * rest)

    def test_alone_on_the_host_there_are_no_windows(self):
        decision = self.decide(vm('a'))
        self.assertIsNone(decision.windows)
        self.assertEqual({}, decision.vms)

    def test_on_cpus_of_their_own_there_are_no_windows(self):
        decision = self.decide(
            vm('a'),
            vm('b'),
            cpus=tuple(model.Cpu(n) for n in range(4)),
            pins={'a': APART, 'b': (frozenset({2}), frozenset({3}))},
        )
        self.assertIsNone(decision.windows)

    def test_who_sleeps_takes_no_part(self):
        windows = self.decide(
            vm('a'), vm('b'), vm('c', sample=busy(part=0.4))
        ).windows
        self.assertEqual({'a', 'b'}, set(windows.shares_after))

    def test_one_lazy_vcpu_is_enough_to_take_no_part(self):
        lazy = dataclasses.replace(
            busy(), vcpu_run_us=(TICK_US / 2, 0.0), vcpu_wait_us=(5e4, 100.0)
        )
        windows = self.decide(vm('a'), vm('b', sample=lazy)).windows
        self.assertNotIn('b', windows.shares_after)

    def test_who_starves_is_not_taken_for_a_sleeper(self):
        """Its counters stand still; the wait is told when it is over."""
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

    def test_a_short_sleep_does_not_end_the_windows(self):
        policy = gang.GangPolicy(CONFIG)
        self.decide(vm('a'), vm('b'), ticks=30, policy=policy)
        decision = self.decide(
            vm('a'), vm('b', sample=busy(part=0.1)), ticks=3, policy=policy
        )
        self.assertIsNotNone(decision.windows)

    def test_a_hog_that_dozes_keeps_its_pauses(self):
        policy = gang.GangPolicy(CONFIG)
        self.decide(vm('a'), others=(hog('h'),), policy=policy)
        decision = self.decide(
            vm('a'), others=(hog('h', part=0.9),), policy=policy
        )
        self.assertTrue(
            any(not turn.favoured for turn in decision.windows.turns)
        )

    def test_who_does_nothing_for_long_sleeps(self):
        """Standing still for a while might be starving."""
        policy = gang.GangPolicy(CONFIG)
        idle = model.Sample(None, None, (0, 0), (0, 0), (0, 0), TICK_US)
        self.decide(vm('a'), vm('b'), ticks=30, policy=policy)
        for ticks, taking_part in ((15, True), (60, False)):
            decision = self.decide(
                vm('a'), vm('b', sample=idle), ticks=ticks, policy=policy
            )
            self.assertEqual(taking_part, decision.windows is not None)

    def test_a_long_sleep_does(self):
        policy = gang.GangPolicy(CONFIG)
        self.decide(vm('a'), vm('b'), ticks=30, policy=policy)
        decision = self.decide(
            vm('a'), vm('b', sample=busy(part=0.1)), ticks=90, policy=policy
        )
        self.assertIsNone(decision.windows)

    def test_where_the_host_cannot_tell_the_word_parallel_counts(self):
        blind = model.Sample(elapsed_us=TICK_US)
        windows = self.decide(
            vm('a', sample=blind), vm('b', sample=blind)
        ).windows
        self.assertEqual({'a', 'b'}, set(windows.shares_after))

    def test_the_io_pool_is_left_out(self):
        decision = self.decide(vm('a'), vm('b'), in_io_pool=('b',))
        names = (
            set(decision.windows.shares_after) if decision.windows else set()
        )
        self.assertNotIn('b', names)

    def test_other_workloads_are_never_written(self):
        windows = self.decide(
            vm('a'), vm('b'), vm('w', workload=model.Workload.LATENCY)
        ).windows
        self.assertNotIn('w', windows.shares_after)

    def test_not_pinned_takes_no_part(self):
        windows = self.decide(vm('a'), vm('b'), pins={'a': APART}).windows
        self.assertNotIn('b', windows.shares_after)

    def test_one_vcpu_alone_has_no_sibling_to_meet(self):
        one = {'vcpus': 1, 'sample': busy(1)}
        self.assertIsNone(
            self.decide(
                vm('a', **one),
                vm('b', **one),
                pins={'a': APART[:1], 'b': APART[:1]},
            ).windows
        )


class TestClusters(GangTestCase):
    """Members of a cluster on this host."""

    ONE = {'vcpus': 1, 'sample': busy(1)}

    def test_members_side_by_side_share_a_window(self):
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

    def test_hosts_with_the_same_clusters_agree_without_a_word(self):
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

    def test_disjoint_cpus_have_windows_at_the_same_time(self):
        far = (frozenset({2}), frozenset({3}))
        windows = self.decide(
            *(vm(name) for name in 'abcd'),
            cpus=tuple(model.Cpu(n) for n in range(4)),
            pins={'a': APART, 'b': APART, 'c': far, 'd': far},
        ).windows
        for name in 'abcd':
            self.assertAlmostEqual(0.5, self.part_favoured(windows, name), 2)


class TestOthers(GangTestCase):
    """VMs without windows keep their fair share, whatever their number."""

    def part_of_pauses(self, windows):
        return (
            1
            - sum(turn.width_us for turn in windows.turns if turn.favoured)
            / windows.cycle_us
        )

    def part_of_hogs(self, windows, weight):
        """What weights give VMs that always run, on every CPU alike."""
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

    def test_strongly_favoured_gangs_leave_all_in_pauses(self):
        windows = self.decide(
            vm('a'),
            vm('b'),
            others=(hog('h'), hog('i')),
            config=dataclasses.replace(CONFIG, gang_favour=1000),
        ).windows
        self.assertAlmostEqual(0.5, self.part_of_pauses(windows), delta=0.02)

    def test_one_gang_beside_a_hog_has_windows(self):
        windows = self.decide(vm('a'), others=(hog('h'),)).windows
        self.assertEqual({'a'}, set(windows.shares_after))
        self.assertGreater(self.part_of_pauses(windows), 0.4)

    def test_others_are_never_named(self):
        windows = self.decide(vm('a'), vm('b'), others=(hog('h'),)).windows
        self.assertEqual({'a', 'b'}, set(windows.shares_after))

    def test_in_a_pause_no_parallel_vm_weighs_anything(self):
        windows = self.decide(vm('a'), vm('b'), others=(hog('h'),)).windows
        pauses = [turn for turn in windows.turns if not turn.favoured]
        self.assertTrue(pauses)
        for turn in pauses:
            self.assertLess(sum(turn.shares.values()), 1024 / 10)

    def test_who_sleeps_mostly_needs_no_pause(self):
        windows = self.decide(
            vm('a'), vm('b'), others=(hog('w', part=0.02),)
        ).windows
        self.assertEqual(0, self.part_of_pauses(windows))

    def test_a_new_hog_is_not_outweighed_before_it_is_known(self):
        """Until then the gangs weigh together what they always weigh."""
        windows = self.decide(
            vm('a'), vm('b'), others=(hog('h'),), ticks=10
        ).windows
        for turn in windows.turns:
            self.assertLessEqual(sum(turn.shares.values()), 2 * 1024 * 1.05)

    def test_beside_sleepers_the_gangs_weigh_what_they_always_weigh(self):
        windows = self.decide(
            vm('a'), vm('b'), others=(hog('w', part=0.5),)
        ).windows
        for turn in windows.turns:
            self.assertLessEqual(sum(turn.shares.values()), 2 * 1024 * 1.05)

    def test_who_answers_requests_is_no_hog(self):
        windows = self.decide(
            vm('a'), vm('b'), vm('w', workload=model.Workload.LATENCY)
        ).windows
        self.assertEqual(0, self.part_of_pauses(windows))

    def test_cpus_without_gangs_serve_the_others_first(self):
        windows = self.decide(
            vm('a'),
            vm('b'),
            others=(hog('h'),),
            cpus=tuple(model.Cpu(n) for n in range(4)),
        ).windows
        self.assertEqual(0, self.part_of_pauses(windows))

    def test_who_asked_for_us_on_dedicated_cpus_needs_no_pause(self):
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

    def test_who_asked_for_us_needs_none_for_its_dedicated_vcpus(self):
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
            # Where they run is not known.
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

    def test_its_other_vcpus_are_where_they_are_bound_to(self):
        """Nova binds these to NUMA nodes, too."""
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
        found = self.decide(*gangs, mixed, pins=pins, cpus=cpus)
        self.assertEqual(expected.windows, found.windows)
        self.assertNotEqual(everywhere.windows, found.windows)

    def test_who_would_get_next_to_nothing_is_served_within_the_windows(self):
        for shares, pauses in ((100, False), (400, True)):
            windows = self.decide(
                vm('a'), vm('b'), others=(hog('h', shares=shares),)
            ).windows
            self.assertEqual(pauses, self.part_of_pauses(windows) > 0)

    def test_heavier_others_get_more(self):
        light = self.decide(vm('a'), others=(hog('h'),)).windows
        heavy = self.decide(vm('a'), others=(hog('h', shares=4096),)).windows
        self.assertGreater(
            self.part_of_pauses(heavy), self.part_of_pauses(light)
        )

    def test_steady_demand_makes_a_steady_schedule(self):
        """A new one each tick would lose the alignment between hosts."""
        policy = gang.GangPolicy(CONFIG)
        seen = set()
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
                seen.add(tuple(t.width_us for t in decision.windows.turns))
        self.assertEqual(1, len(seen))

    def test_what_stays_is_not_made_anew(self):
        """Turns times VMs can be many, and a tick comes every 100 ms."""
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

    def test_what_changes_is_made_anew(self):
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
            found, fresh = (
                self.decide(*vms, cpus=cpus, pins=pins, policy=one).windows
                for one in (policy, None)
            )
            self.assertEqual(fresh, found)
            windows.add(repr(found))
        self.assertEqual(4, len(windows))

    def test_who_sleeps_is_let_loose_with_windows_and_without(self):
        asleep = vm('z', sample=busy(part=0.3))
        for vms in ((vm('a'), asleep), (vm('a'), vm('b'), asleep)):
            decision = self.decide(*vms, ticks=60)
            self.assertEqual(len(vms) > 2, decision.windows is not None)
            self.assertEqual({'z'}, decision.loose)

    def test_only_who_meets_a_hog_pauses(self):
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

    def test_other_limits_make_other_weights(self):
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
    """What is written, and what is put back."""

    def test_original_shares_come_back(self):
        windows = self.decide(
            vm('a', original=model.CpuTune(100_000, -1, 300)), vm('b')
        ).windows
        self.assertEqual({'a': 300, 'b': 1024}, windows.shares_after)

    def test_unknown_shares_are_the_kernels_default(self):
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
    def test_every_schedule_can_be_written_and_played(
        self, names, apart, shares, hogs, hog_shares, v2, window_us
    ):
        """
        :param apart: how many are on other CPUs than the rest.
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
            # Until it is known who never sleeps.
            ticks=25,
            config=dataclasses.replace(CONFIG, gang_window_us=window_us),
        ).windows
        if windows is None:
            # Two would share CPUs, and have to take turns.
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
