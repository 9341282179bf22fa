# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Gang windows: which VMs are favoured when, what is left for others."""

import dataclasses

import hypothesis
import testscenarios
from hypothesis import strategies

from nova_vhpc.control import model
from nova_vhpc.control.gang import policy as gang
from nova_vhpc.control.slices import base
from nova_vhpc.tests.unit.control.gang.policy_case import (
    CONFIG,
    TICK_US,
    V1,
    V2,
    GangTestCase,
    busy,
    hog,
    received,
    vm,
    weighing,
)

UNMEASURED = model.Sample(elapsed_us=TICK_US)


def scenario(name, *vms, gangs=None, reasons=None, **options):
    """Return a scenario: VMs of a host, and those that have windows.

    :param gangs: uuids of the VMs with windows; None: there are no windows.
    :param reasons: parts of the reasons of VMs, by uuid.
    """
    return name, {
        'vms': vms,
        'gangs': gangs,
        'reasons': reasons or {},
        'options': options,
    }


LAZY = dataclasses.replace(
    busy(), vcpu_run_us=(TICK_US / 2, 0.0), vcpu_wait_us=(5e4, 100.0)
)
UNMEASURED_HOG = dataclasses.replace(hog('h'), sample=UNMEASURED)
HEAVY, LIGHT = weighing(262_144), weighing(2)
HALF_FAVOURED = weighing(20_000)


class TestParticipants(testscenarios.WithScenarios, GangTestCase):
    """Which VMs have windows, under which conditions, and what status says."""

    scenarios = (
        scenario('only VM', vm('a')),
        scenario('gangs side by side', vm('a'), vm('b'), cpus=4),
        scenario(
            'sleeper', vm('a'), vm('b'), vm('c', sample=busy(part=0.4)),
            gangs='ab',
        ),
        scenario(
            'idle vCPU', vm('a'), vm('c'), vm('b', sample=LAZY), gangs='ac',
            ticks=60,
        ),
        scenario(
            'I/O pool', vm('a'), vm('b'), vm('c'), gangs='ac',
            in_io_pool=('b',),
        ),
        scenario(
            'latency VM', vm('a'), vm('b'),
            vm('w', workload=model.Workload.LATENCY), gangs='ab',
        ),
        scenario('unmanaged VM', vm('a'), gangs='a', others=(hog('h'),)),
        scenario(
            'may not be pinned', vm('a'), vm('b'), vm('n', repin=False),
            gangs='ab',
        ),
        scenario(
            'one vCPU each', *(vm(uuid, vcpus=1) for uuid in 'abc'), cpus=2
        ),
        scenario(
            'wider than what others leave', vm('w', vcpus=8),
            vm('n', original=HALF_FAVOURED), vm('m', original=HALF_FAVOURED),
            gangs='mn', others=tuple(hog(str(n)) for n in range(4)), cpus=8,
            reasons={
                'w': 'no windows: it finds no place beside the other VMs'
            },
        ),
        scenario(
            'CPUs for all', vm('a'), vm('b'), others=(hog('h'),), cpus=8,
            reasons={'a': 'needs no windows'},
        ),
        # In the schedule it would be idle all the time.
        scenario(
            'too light', vm('a', original=HEAVY), vm('b', original=HEAVY),
            vm('l', original=LIGHT), gangs='ab', reasons={'l': 'no place'},
        ),
        scenario(
            'old kernel', vm('a'), vm('b'),
            limits=dataclasses.replace(V1, can_idle=False),
            reasons=dict.fromkeys('ab', 'Linux 5.15'),
        ),
        scenario(
            'agent that may not place vCPUs', vm('a'), vm('b'),
            limits=dataclasses.replace(V1, can_place=False),
            reasons=dict.fromkeys('ab', 'CAP_SYS_NICE'),
        ),
        # The cost of windows would not be known.
        scenario(
            'no measurements', vm('a', sample=UNMEASURED),
            vm('b', sample=UNMEASURED),
            reasons=dict.fromkeys(
                'ab', 'no windows: its CPU time cannot be measured'
            ),
        ),
        scenario(
            'one unmeasured', vm('a'), vm('b'), vm('u', sample=UNMEASURED),
            gangs='ab', reasons={'u': 'measured'},
        ),
        scenario(
            'unmeasured outside', vm('a'), vm('b'), gangs='ab',
            others=(UNMEASURED_HOG,),
        ),
        scenario(
            'new mix', vm('a'), vm('b'), ticks=20,
            reasons={
                'a': 'no windows: the host is first watched without them'
            },
        ),
        scenario(
            'VM outside that lost too much', received(vm('a'), 1.4),
            others=(received(hog('h'), 0.6),), ticks=150, fair=False,
            reasons={
                'a': 'no windows: they took too much CPU time from a VM; '
                'tried again later'
            },
        ),
        # With the weight that serves the one, gangs cannot outweigh the other.
        scenario(
            'busy server and hog', vm('a'), vm('b'),
            others=(hog('h'), hog('w', part=0.6)),
            reasons={
                'a': 'no windows: they would delay VMs that are busy and '
                'sleep at times'
            },
        ),
        # Each member would wait for the windows of the other.
        *(
            scenario(
                f'{paradigm.value} members beyond the CPUs',
                *(vm(uuid, cluster='x', paradigm=paradigm) for uuid in 'pq'),
            )
            for paradigm in (model.Paradigm.MPI, model.Paradigm.HYBRID)
        ),
    )  # fmt: skip

    def test_windows_and_reasons(self):
        decision = self.decide(*self.vms, **self.options)
        if self.gangs is None:
            self.assertIsNone(decision.windows)
        else:
            self.assertEqual(
                set(self.gangs), set(decision.windows.shares_after)
            )
        for uuid, reason in self.reasons.items():
            self.assertIn(reason, decision.vms[uuid].reason)
            self.assertFalse(decision.vms[uuid].by_windows)


class TestParts(GangTestCase):
    def test_equal_vms_are_favoured_equally_and_one_after_the_other(self):
        for vcpus, cpus, part in ((2, 2, 1 / 3), (4, 8, 2 / 3)):
            windows = self.decide(
                *(vm(uuid, vcpus=vcpus) for uuid in 'abc'), cpus=cpus
            ).windows
            for uuid in 'abc':
                self.assertAlmostEqual(
                    part, self.part_favoured(windows, uuid), delta=0.02
                )
            self.assertEqual(
                {cpus // vcpus}, {len(turn.favoured) for turn in windows.turns}
            )

    def test_no_windows_if_no_weight_is_writable(self):
        limits = model.ActuatorLimits(min_shares=2, max_shares=1)
        decision = self.decide(vm('a'), vm('b'), limits=limits)
        self.assertEqual(
            base.SliceDecision(waiting=decision.waiting), decision
        )

    def test_vms_that_may_use_the_same_cpus_only_are_not_starved(self):
        # Side by side by their number of vCPUs; not by their pins.
        here = frozenset({0, 1})
        windows = self.decide(
            vm('a', allowed_cpus=here),
            vm('b', allowed_cpus=here),
            others=(hog('h', vcpus=4),),
            cpus=8,
            fair=False,
        ).windows
        for uuid in windows.shares_after if windows else ():
            self.assertGreater(self.part_favoured(windows, uuid), 0)


class TestWatching(GangTestCase):
    def test_windows_end_while_a_vm_that_came_is_watched(self):
        policy = gang.GangPolicy(CONFIG)
        self.decide(vm('a'), vm('b'), policy=policy)
        ends = self.decide(vm('a'), vm('b'), vm('c'), policy=policy, ticks=10)
        self.assertIsNone(ends.windows)
        begins = self.decide(vm('a'), vm('b'), vm('c'), policy=policy)
        self.assertEqual(set('abc'), set(begins.windows.shares_after))

    def test_vm_that_wakes_up_from_time_to_time_does_not_stop_windows(self):
        # As idle guests do. In most periods it receives nothing.
        for every, run_us in ((3, 3e4), (10, TICK_US), (35, TICK_US)):
            policy = gang.GangPolicy(CONFIG)
            reasons = set()
            for tick in range(300):
                sample = model.Sample(
                    vcpu_run_us=(0.0 if tick % every else run_us,),
                    vcpu_wait_us=(0.0,),
                    elapsed_us=TICK_US,
                )
                decision = self.decide(
                    received(vm('a'), 0.97),
                    received(vm('b'), 0.97),
                    others=(model.OtherVm('w', 1, 1_024, sample),),
                    policy=policy,
                    ticks=1,
                    fair=False,
                )
                if tick > 70:
                    reasons.add(decision.vms['a'].reason)
            self.assertEqual({'gang window'}, reasons, every)

    def test_decision_says_what_vms_received(self):
        shares = self.decide(vm('a'), others=(hog('h'),)).cpu_shares
        self.assertAlmostEqual(1.0, shares.received['a'], places=2)
        self.assertAlmostEqual(1.0, shares.received['h'], places=2)
        self.assertEqual(1.0, shares.played)
        self.assertEqual(0.0, shares.missing)

    def test_decision_says_what_gangs_are_entitled_to(self):
        (gang_demand,) = self.decide(vm('a'), others=(hog('h'),)).gangs
        self.assertEqual('a', gang_demand.key)
        self.assertEqual(vm('a').vcpus, gang_demand.width)
        # The rest is the other VM's.
        self.assertGreater(gang_demand.part, 0.2)
        self.assertLess(gang_demand.part, 1.0)


class TestDemandOverTime(GangTestCase):
    def test_starved_vm_keeps_its_window(self):
        """Its counters stand still; the kernel adds a wait when it ends."""
        policy = gang.GangPolicy(CONFIG)
        starved = model.Sample(None, None, (0, 0), (0, 0), (0, 0), TICK_US)
        relieved = model.Sample(
            None, None, (9e5, 9e5), (9e4, 9e4), (1, 1), TICK_US
        )
        self.decide(vm('a'), vm('b'), policy=policy)
        self.decide(vm('a'), vm('b', sample=starved), ticks=9, policy=policy)
        decision = self.decide(
            vm('a'), vm('b', sample=relieved), ticks=1, policy=policy
        )
        self.assertEqual({'a', 'b'}, set(decision.windows.shares_after))

    def test_windows_outlast_a_short_sleep_and_end_after_a_long_one(self):
        for part, ticks, go_on in ((0.1, 3, True), (0.02, 90, False)):
            policy = gang.GangPolicy(CONFIG)
            self.decide(vm('a'), vm('b'), policy=policy)
            decision = self.decide(
                vm('a'),
                vm('b', sample=busy(part=part)),
                ticks=ticks,
                policy=policy,
            )
            self.assertEqual(go_on, decision.windows is not None)

    def test_schedule_stays_while_demand_varies_by_three_percent(self):
        """A new one in each tick would end the alignment between hosts."""
        policy = gang.GangPolicy(CONFIG)
        schedules = set()
        for tick in range(120):
            windows = self.decide(
                vm('a'),
                vm('b'),
                others=(hog('w', part=0.3 + 0.01 * (tick % 2)),),
                ticks=1,
                policy=policy,
            ).windows
            if tick > 70:
                schedules.add(
                    tuple(
                        (turn.width_us, turn.favoured)
                        for turn in windows.turns
                    )
                )
        self.assertEqual(1, len(schedules))

    def test_windows_end_if_they_hold_a_sleeping_vm_up(self):
        for wait_us, has_windows in ((6e4, False), (0.0, True)):
            policy = gang.GangPolicy(CONFIG)
            for run_us, waited_us in ((4e4, 2e4), (2e4, wait_us)):
                sleeper = model.OtherVm(
                    'w',
                    2,
                    1_024,
                    model.Sample(
                        vcpu_run_us=(run_us,) * 2,
                        vcpu_wait_us=(waited_us,) * 2,
                        elapsed_us=TICK_US,
                    ),
                )
                decision = self.decide(
                    received(vm('a'), 0.6 + (4e4 - run_us) / TICK_US),
                    received(vm('b'), 0.6 + (4e4 - run_us) / TICK_US),
                    others=(sleeper,),
                    policy=policy,
                    ticks=150 if run_us < 4e4 else 35,
                    fair=False,
                )
            self.assertEqual(has_windows, decision.windows is not None)

    def test_host_is_watched_again_if_a_sleeping_vm_uses_more_for_long(self):
        # It may use more because windows serve it better than the kernel does:
        # its demand is what it uses without windows.
        policy = gang.GangPolicy(CONFIG)
        before = self.decide(
            vm('a'), vm('b'), others=(hog('w', part=0.2),), policy=policy
        )
        self.assertIsNotNone(before.windows)
        is_off = [
            self.decide(
                received(vm('a'), 0.9),
                received(vm('b'), 0.9),
                others=(hog('w', part=0.5),),
                policy=policy,
                ticks=10,
                fair=False,
            ).windows
            is None
            for _ in range(25)
        ]
        self.assertFalse(is_off[5])
        self.assertIn(True, is_off)
        self.assertFalse(is_off[-1])

    def test_schedule_is_the_same_object_until_the_vms_change(self):
        """A schedule can be large, and a tick comes every 100 ms."""
        policy = gang.GangPolicy(CONFIG)
        steady, again = (
            self.decide(
                vm('a'), vm('b'), others=(hog('h'),), ticks=t, policy=policy
            ).windows
            for t in (70, 1)
        )
        self.assertIsNotNone(steady)
        self.assertIs(steady, again)


class TestClusters(GangTestCase):
    """Windows of the members of a cluster on one host."""

    def test_members_share_a_window_if_they_fit_side_by_side(self):
        openmp = model.Paradigm.OPENMP
        narrow = [vm(uuid, cluster='x', vcpus=1) for uuid in 'pq']
        wide = [vm(uuid, cluster='x', paradigm=openmp) for uuid in 'pq']
        for vms, favoured in (
            ((*narrow, vm('b')), ('pq', 'b')),
            (wide, ('p', 'q')),
        ):
            self.assertEqual(
                set(map(frozenset, favoured)),
                {turn.favoured for turn in self.decide(*vms).windows.turns},
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


class TestSlots(GangTestCase):
    """Slots on which the hosts of a cluster agreed."""

    SLOT_US = CONFIG.gang_window_us

    def favoured(self, windows, slot):
        index, _ = windows.turn_at(slot * self.SLOT_US + 1)
        return windows.turns[index].favoured

    def test_hosts_with_other_clusters_favour_a_common_one_at_once(self):
        slots = {'x': model.ClusterSlot(0x2222)}
        here = self.decide(
            vm('1', cluster='x'), vm('2'), vm('3'), vm('4'), slots=slots
        ).windows
        there = self.decide(
            vm('9', cluster='x'), vm('8'), others=(hog('h'),), slots=slots
        ).windows
        self.assertEqual(here.cycle_us, there.cycle_us)
        for slot in range(1, 100, 4):
            self.assertEqual({'1'}, self.favoured(here, slot))
            self.assertEqual({'9'}, self.favoured(there, slot))

    def test_equal_vms_get_equal_time_beside_a_cluster_with_slots(self):
        windows = self.decide(
            vm('1', cluster='x'),
            vm('2'),
            vm('3'),
            slots={'x': model.ClusterSlot(0x2222)},
        ).windows
        for uuid in '123':
            self.assertAlmostEqual(
                1 / 3, self.part_favoured(windows, uuid), delta=0.02
            )

    def test_slots_are_kept_though_another_gang_lacks_time(self):
        windows = self.decide(
            vm('1', cluster='x'),
            vm('2'),
            slots={'x': model.ClusterSlot(0x7777)},
        ).windows
        self.assertAlmostEqual(0.25, self.part_favoured(windows, '2'), 2)
        for slot in (0, 1, 2):
            self.assertEqual({'1'}, self.favoured(windows, slot))

    def test_cluster_without_slots_on_all_hosts_has_no_windows(self):
        decision = self.decide(
            vm('1', cluster='x'), vm('2'), vm('3'), slots={'x': None}
        )
        self.assertEqual({'2', '3'}, set(decision.windows.shares_after))
        self.assertEqual(gang.NO_COMMON_SLOTS, decision.vms['1'].reason)
        # This host would play for it.
        self.assertEqual({'x', '2', '3'}, {one.key for one in decision.gangs})
        self.assertTrue(all(one.plays for one in decision.gangs))

    def test_host_says_for_which_clusters_it_plays_no_windows(self):
        spins = vm('1', cluster='x')
        wide = [vm(uuid, cluster='x', vcpus=3) for uuid in 'pq']
        for name, vms, plays, options in (
            ('alone', (spins,), True, {}),
            ('beside another', (spins, vm('2')), True, {}),
            ('still watched', (spins, vm('2')), True, {'ticks': 20}),
            ('too wide', wide, False, {'cpus': 4}),
            (
                'old kernel',
                (spins, vm('2')),
                False,
                {'limits': dataclasses.replace(V1, can_idle=False)},
            ),
            (
                'busy server',
                (spins, vm('2')),
                False,
                {'others': (hog('h'), hog('w', part=0.6))},
            ),
            (
                'harmful',
                (received(spins, 1.4),),
                False,
                {'others': (received(hog('h'), 0.6),), 'fair': False},
            ),
        ):
            with self.subTest(name):
                decision = self.decide(*vms, **{'ticks': 150, **options})
                self.assertEqual(
                    [plays],
                    [one.plays for one in decision.gangs if one.key == 'x'],
                )

    def test_single_vcpu_of_a_cluster_waits_for_other_hosts_to_agree(self):
        lone = vm('1', cluster='x', vcpus=1)
        others = (hog('h'),)
        decision = self.decide(lone, others=others)
        self.assertIsNone(decision.windows)
        self.assertIn('needs no windows', decision.vms['1'].reason)
        (asked,) = decision.gangs
        self.assertEqual(('x', 1), asked[:2])
        agreed = self.decide(
            lone, others=others, slots={'x': model.ClusterSlot(0xAAAA)}
        )
        for slot in range(1, 100, 2):
            self.assertEqual({'1'}, self.favoured(agreed.windows, slot))
        self.assertEqual(decision.gangs, agreed.gangs)

    def test_single_vcpu_of_no_cluster_asks_for_nothing(self):
        decision = self.decide(vm('1', vcpus=1), others=(hog('h'),))
        self.assertEqual((), tuple(decision.gangs))

    def test_decision_says_what_gangs_are_entitled_to(self):
        decision = self.decide(vm('1', cluster='x'), vm('2', cluster='y'))
        self.assertEqual(
            [model.GangDemand('x', 2, 0.5), model.GangDemand('y', 2, 0.5)],
            sorted(decision.gangs),
        )


class TestCpus(GangTestCase):
    """Each favoured vCPU has a CPU of its own."""

    def test_each_window_places_the_gangs_that_it_favours(self):
        windows = self.decide(
            *(vm(uuid, vcpus=4) for uuid in 'abc'), cpus=8
        ).windows
        for turn in windows.turns:
            self.assertEqual(turn.favoured, turn.cpus.keys())
            used = [cpu for cpus in turn.cpus.values() for cpu in cpus]
            self.assertEqual(list(range(8)), sorted(used))

    def test_pinned_busy_vm_keeps_its_cpus_clear(self):
        bound = dataclasses.replace(
            hog('h'), vcpu_pins=(frozenset({0, 1}),) * 2
        )
        windows = self.decide(
            vm('a'),
            vm('b'),
            others=(bound, hog('i', vcpus=4)),
            cpus=8,
            fair=False,
            ticks=60,
        ).windows
        for turn in windows.turns:
            for cpus in turn.cpus.values():
                self.assertTrue({0, 1}.isdisjoint(cpus))

    def test_gangs_change_cpus_from_time_to_time(self):
        policy = gang.GangPolicy(CONFIG)
        used = set()
        for _ in range(8):
            windows = self.decide(
                vm('a'),
                vm('b'),
                others=(hog('h', vcpus=8),),
                cpus=8,
                policy=policy,
                ticks=gang.SIDE_PERIODS,
            ).windows
            for turn in windows.turns if windows else ():
                used.update(turn.cpus.get('a', ()))
        self.assertGreater(len(used), 4)


class TestOthers(GangTestCase):
    """VMs without windows keep their fair share."""

    def test_pauses_are_as_long_as_others_are_entitled_to(self):
        two = (vm('a'), vm('b'))
        for vms, others, part in (
            *(
                (two, [hog(str(n)) for n in range(number)], number)
                for number in (1, 2, 4)
            ),
            (two[:1], [hog('h')], 1),
            (two[:1], [hog('h', shares=4096)], 4),
        ):
            windows = self.decide(*vms, others=tuple(others)).windows
            self.assertAlmostEqual(
                part / (part + len(vms)),
                self.part_of_pauses(windows),
                delta=0.03,
            )

    def test_narrow_hog_has_a_clear_cpu_for_its_time(self):
        windows = self.decide(
            vm('a', vcpus=4),
            vm('b', vcpus=4),
            others=(hog('h', vcpus=1),),
            cpus=8,
        ).windows
        if windows is None:
            return
        clear = sum(
            turn.width_us
            for turn in windows.turns
            if sum(map(len, turn.cpus.values())) < 8
        )
        self.assertGreater(clear, 0.9 * windows.cycle_us)

    def test_no_pause_for_a_vm_that_mostly_sleeps(self):
        windows = self.decide(
            vm('a'), vm('b'), others=(hog('w', part=0.02),)
        ).windows
        self.assertEqual(0, self.part_of_pauses(windows))

    def test_quota_limits_the_pauses(self):
        limited = dataclasses.replace(hog('h'), share=0.1)
        decision = self.decide(
            vm('a'), vm('b'), others=(received(limited, 0.2),)
        )
        self.assertAlmostEqual(
            0.1, self.part_of_pauses(decision.windows), delta=0.05
        )

    def test_dedicated_cpus_need_no_pause(self):
        away = vm(
            'd',
            workload=model.Workload.GENERAL,
            repin=False,
            allowed_cpus=frozenset({8, 9}),
        )
        expected = self.decide(vm('a'), vm('b')).windows
        policy = gang.GangPolicy(CONFIG)
        decision = self.decide(
            received(vm('a'), 1.0),
            received(vm('b'), 1.0),
            away,
            fair=False,
            policy=policy,
        )
        self.assertEqual(expected, decision.windows)

    def test_dedicated_vcpus_of_a_mixed_vm_need_no_pause(self):
        """As with ``hw:cpu_policy=mixed``."""
        shared, own = (frozenset({0, 1}),), (frozenset({8}), frozenset({9}))
        for run_us, pauses in (
            ((TICK_US, TICK_US, 0.0), False),
            ((0.0, 0.0, TICK_US), True),
        ):
            mixed = vm(
                'm',
                vcpus=3,
                workload=model.Workload.GENERAL,
                repin=False,
                allowed_cpus=frozenset({0, 1}),
                sample=model.Sample(
                    vcpu_run_us=run_us,
                    vcpu_wait_us=(0.0,) * 3,
                    elapsed_us=TICK_US,
                ),
                in_force=model.CpuTune(vcpu_pins=own + shared),
            )
            windows = self.decide(vm('a'), vm('b'), mixed, fair=False).windows
            self.assertEqual(pauses, self.part_of_pauses(windows) > 0)


class TestWeights(GangTestCase):
    """Weights in windows, and original shares."""

    def test_gangs_out_of_turn_are_idle_and_get_their_shares_back(self):
        windows = self.decide(
            vm('a', original=weighing(300)), vm('b'), others=(hog('h'),)
        ).windows
        for turn in windows.turns:
            for uuid, shares in turn.shares.items():
                self.assertEqual(
                    uuid not in turn.favoured, shares == model.IDLE_SHARES
                )
        self.assertEqual({'a': 300, 'b': 1024}, windows.shares_after)

    def test_weight_of_a_favoured_gang_depends_on_those_beside_it(self):
        for others, shares in (
            ((hog('h', shares=4_096),), CONFIG.gang_favour * 4_096),
            # Next to nothing is left to idle groups.
            ((), 40 * 1_024),
            # A sleeper: what all gangs weigh.
            ((hog('w', part=0.2),), 2_048),
        ):
            windows = self.decide(vm('a'), vm('b'), others=others).windows
            for turn in windows.turns:
                for uuid in turn.favoured:
                    self.assertEqual(shares, turn.shares[uuid])

    def test_sleeping_vm_can_get_three_times_the_time_it_uses(self):
        # Its vCPUs run for 10% of the time; a gang has two CPUs.
        windows = self.decide(
            vm('a'), vm('b'), others=(hog('h'), hog('w', part=0.2))
        ).windows
        for turn in windows.turns:
            for uuid in turn.favoured:
                weight = turn.shares[uuid] / 2
                self.assertAlmostEqual(3 * 0.1, 1_024 / (1_024 + weight), 2)

    def test_latency_vm_is_left_headroom_and_no_pause(self):
        urgent = vm('u', workload=model.Workload.LATENCY)
        windows = self.decide(vm('a'), vm('b'), urgent).windows
        self.assertEqual(set('ab'), set(windows.shares_after))
        for turn in windows.turns:
            for uuid in turn.favoured:
                self.assertLessEqual(turn.shares[uuid], 2 * 1_024)

    def test_heavier_gang_is_favoured_for_longer(self):
        windows = self.decide(
            vm('a', original=weighing(2_048)), vm('b')
        ).windows
        self.assertAlmostEqual(
            2 / 3, self.part_favoured(windows, 'a'), delta=0.02
        )

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

    def test_weights_stay_within_changed_limits(self):
        policy = gang.GangPolicy(CONFIG)
        for limits in (V1, V2, V1):
            windows = self.decide(
                vm('a', original=weighing(9_999)),
                vm('b', original=weighing(9_999)),
                limits=limits,
                policy=policy,
            ).windows
            self.assertEqual(
                min(40 * 9_999, limits.max_shares),
                max(max(turn.shares.values()) for turn in windows.turns),
            )


class TestLengths(GangTestCase):
    """Lengths of the windows."""

    def test_windows_are_wider_if_switches_are_late(self):
        for late_us, width_us in ((1_000, 50_000), (7_000, 200_000)):
            decision = self.decide(vm('a'), vm('b'), late_us=late_us)
            self.assertEqual(
                {width_us}, {turn.width_us for turn in decision.windows.turns}
            )
            self.assertEqual(width_us, decision.vms['a'].slice_us)
            # Period and quota must stay at their original values.
            self.assertTrue(decision.vms['a'].by_windows)
            self.assertEqual('gang window', decision.vms['a'].reason)

    def test_pauses_are_longer_after_a_hog_received_too_little(self):
        fair = self.decide(vm('a'), others=(hog('h'),), ticks=90).windows
        short = self.decide(
            received(vm('a'), 1.1),
            others=(received(hog('h'), 0.9),),
            ticks=75,
            fair=False,
        ).windows
        self.assertGreater(
            self.part_of_pauses(short), self.part_of_pauses(fair) + 0.03
        )

    def test_gang_that_received_too_little_is_favoured_for_longer(self):
        windows = self.decide(
            received(vm('a'), 0.8),
            received(vm('b'), 1.2),
            ticks=75,
            fair=False,
        ).windows
        self.assertGreater(
            self.part_favoured(windows, 'a'), self.part_favoured(windows, 'b')
        )

    @hypothesis.given(
        vcpus=strategies.lists(
            strategies.integers(2, 4), min_size=1, max_size=4
        ),
        shares=strategies.sampled_from((1, 100, 1024, 10_000, 262_144)),
        hogs=strategies.lists(strategies.integers(1, 3), max_size=3),
        hog_shares=strategies.sampled_from((1, 100, 1024, 262_144)),
        limits=strategies.sampled_from((V1, V2)),
        window_us=strategies.integers(5_000, 1_000_000),
    )
    @hypothesis.settings(deadline=None, max_examples=40)
    def test_every_schedule_is_playable_and_starves_nobody(
        self, vcpus, shares, hogs, hog_shares, limits, window_us
    ):
        windows = self.decide(
            *(
                vm(f'g{n}', vcpus=count, original=weighing(shares))
                for n, count in enumerate(vcpus)
            ),
            others=tuple(
                hog(f'h{n}', count, hog_shares) for n, count in enumerate(hogs)
            ),
            limits=limits,
            cpus=4,
            ticks=60,
            config=dataclasses.replace(CONFIG, gang_window_us=window_us),
        ).windows
        if windows is None:
            return
        for turn in windows.turns:
            self.assertGreater(turn.width_us, 0)
            self.assertEqual(windows.shares_after.keys(), turn.shares.keys())
            for uuid, value in turn.shares.items():
                self.assertIs(int, type(value))
                if uuid in turn.favoured:
                    self.assertLessEqual(limits.min_shares, value)
                    self.assertGreaterEqual(limits.max_shares, value)
                else:
                    self.assertEqual(model.IDLE_SHARES, value)
        for uuid in windows.shares_after:
            self.assertGreater(self.part_favoured(windows, uuid), 0)
