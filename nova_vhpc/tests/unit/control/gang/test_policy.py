# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Gang windows: which VMs are favoured when, what is left for others."""

import dataclasses

import hypothesis
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


class TestParticipants(GangTestCase):
    """Which VMs have windows, and under which conditions."""

    def test_three_equal_vms_are_favoured_a_third_of_the_time_each(self):
        windows = self.decide(vm('a'), vm('b'), vm('c')).windows
        for uuid in 'abc':
            self.assertAlmostEqual(1 / 3, self.part_favoured(windows, uuid), 2)
        # They are as wide as the host.
        self.assertEqual({1}, {len(turn.favoured) for turn in windows.turns})

    def test_three_equal_vms_of_half_the_host_are_favoured_equally(self):
        windows = self.decide(
            *(vm(uuid, vcpus=4) for uuid in 'abc'), cpus=8
        ).windows
        for uuid in 'abc':
            self.assertAlmostEqual(
                2 / 3, self.part_favoured(windows, uuid), delta=0.02
            )

    def test_no_windows_for_the_only_vm_of_a_host(self):
        self.assertIsNone(self.decide(vm('a')).windows)

    def test_no_windows_if_all_gangs_fit_side_by_side(self):
        self.assertIsNone(self.decide(vm('a'), vm('b'), cpus=4).windows)

    def test_sleeping_vm_has_no_window(self):
        windows = self.decide(
            vm('a'), vm('b'), vm('c', sample=busy(part=0.4))
        ).windows
        self.assertEqual({'a', 'b'}, set(windows.shares_after))

    def test_vm_with_one_idle_vcpu_has_no_window(self):
        lazy = dataclasses.replace(
            busy(), vcpu_run_us=(TICK_US / 2, 0.0), vcpu_wait_us=(5e4, 100.0)
        )
        windows = self.decide(vm('a'), vm('c'), vm('b', sample=lazy)).windows
        self.assertNotIn('b', windows.shares_after)

    def test_vm_in_io_pool_has_no_window(self):
        windows = self.decide(
            vm('a'), vm('b'), vm('c'), in_io_pool=('b',)
        ).windows
        self.assertEqual({'a', 'c'}, set(windows.shares_after))

    def test_shares_of_a_latency_vm_are_not_written(self):
        windows = self.decide(
            vm('a'), vm('b'), vm('w', workload=model.Workload.LATENCY)
        ).windows
        self.assertEqual({'a', 'b'}, set(windows.shares_after))

    def test_shares_of_unmanaged_vms_are_not_written(self):
        windows = self.decide(vm('a'), others=(hog('h'),)).windows
        self.assertEqual({'a'}, set(windows.shares_after))

    def test_vm_that_may_not_be_pinned_has_no_window(self):
        windows = self.decide(vm('a'), vm('b'), vm('n', repin=False)).windows
        self.assertEqual({'a', 'b'}, set(windows.shares_after))

    def test_no_windows_for_vms_of_one_vcpu_without_cluster(self):
        decision = self.decide(*(vm(uuid, vcpus=1) for uuid in 'abc'), cpus=2)
        self.assertIsNone(decision.windows)

    def test_no_windows_if_no_weight_is_writable(self):
        limits = model.ActuatorLimits(min_shares=2, max_shares=1)
        decision = self.decide(vm('a'), vm('b'), limits=limits)
        self.assertEqual(
            base.SliceDecision(waiting=decision.waiting), decision
        )

    def test_vm_wider_than_what_others_leave_has_no_window(self):
        decision = self.decide(
            vm('w', vcpus=8),
            vm('n', original=weighing(20_000)),
            vm('m', original=weighing(20_000)),
            others=tuple(hog(str(n)) for n in range(4)),
            cpus=8,
        )
        self.assertNotIn('w', decision.windows.shares_after)
        self.assertEqual(
            'no windows: it finds no place beside the other VMs',
            decision.vms['w'].reason,
        )
        self.assertFalse(decision.vms['w'].by_windows)

    def test_host_with_cpus_for_all_has_no_windows(self):
        decision = self.decide(vm('a'), vm('b'), others=(hog('h'),), cpus=8)
        self.assertIsNone(decision.windows)
        self.assertIsNone(decision.cpu_shares)
        self.assertIn('needs no windows', decision.vms['a'].reason)

    def test_vm_too_light_for_a_window_is_not_in_the_schedule(self):
        # In the schedule it would be idle all the time.
        decision = self.decide(
            vm('a', original=weighing(262_144)),
            vm('b', original=weighing(262_144)),
            vm('l', original=weighing(2)),
        )
        self.assertEqual({'a', 'b'}, set(decision.windows.shares_after))
        self.assertIn('no place', decision.vms['l'].reason)

    def test_vms_that_may_use_the_same_cpus_only_are_not_starved(self):
        # Side by side by their number of vCPUs; not by their pins.
        here = frozenset({0, 1})
        decision = self.decide(
            vm('a', allowed_cpus=here),
            vm('b', allowed_cpus=here),
            others=(hog('h', vcpus=4),),
            cpus=8,
            fair=False,
        )
        windows = decision.windows
        for uuid in windows.shares_after if windows else ():
            self.assertGreater(self.part_favoured(windows, uuid), 0)


class TestActuator(GangTestCase):
    def test_no_windows_are_played_without_what_they_need_and_status_says_so(
        self,
    ):
        for missing, reason in (
            ({'can_idle': False}, 'Linux 5.15'),
            ({'can_place': False}, 'CAP_SYS_NICE'),
        ):
            decision = self.decide(
                vm('a'),
                vm('b'),
                limits=dataclasses.replace(V1, **missing),
            )
            self.assertIsNone(decision.windows)
            for uuid in 'ab':
                self.assertIn(reason, decision.vms[uuid].reason)


class TestUnmeasured(GangTestCase):
    """Without measurements the cost of windows would not be known."""

    def test_host_without_measurements_has_no_windows(self):
        decision = self.decide(
            vm('a', sample=UNMEASURED), vm('b', sample=UNMEASURED)
        )
        self.assertIsNone(decision.windows)
        for uuid in 'ab':
            self.assertEqual(
                'no windows: its CPU time cannot be measured',
                decision.vms[uuid].reason,
            )

    def test_unmeasured_vm_has_no_window_beside_measured_ones(self):
        decision = self.decide(vm('a'), vm('b'), vm('u', sample=UNMEASURED))
        self.assertEqual({'a', 'b'}, set(decision.windows.shares_after))
        self.assertIn('measured', decision.vms['u'].reason)

    def test_unmeasured_vm_outside_does_not_stop_windows(self):
        blind = dataclasses.replace(hog('h'), sample=UNMEASURED)
        decision = self.decide(vm('a'), vm('b'), others=(blind,))
        self.assertIsNotNone(decision.windows)


class TestWatching(GangTestCase):
    def test_new_mix_of_vms_is_watched_without_windows_and_status_says_so(
        self,
    ):
        decision = self.decide(vm('a'), vm('b'), ticks=20)
        self.assertIsNone(decision.windows)
        self.assertEqual(
            'no windows: the host is first watched without them',
            decision.vms['a'].reason,
        )

    def test_windows_end_while_a_vm_that_came_is_watched(self):
        policy = gang.GangPolicy(CONFIG)
        self.decide(vm('a'), vm('b'), policy=policy)
        ends = self.decide(vm('a'), vm('b'), vm('c'), policy=policy, ticks=10)
        self.assertIsNone(ends.windows)
        begins = self.decide(vm('a'), vm('b'), vm('c'), policy=policy)
        self.assertEqual(set('abc'), set(begins.windows.shares_after))

    def test_windows_end_if_they_cost_a_vm_outside_too_much(self):
        decision = self.decide(
            received(vm('a'), 1.4),
            others=(received(hog('h'), 0.6),),
            ticks=150,
            fair=False,
        )
        self.assertIsNone(decision.windows)
        self.assertEqual(
            'no windows: they took too much CPU time from a VM; tried again '
            'later',
            decision.vms['a'].reason,
        )

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

    def test_windows_continue_after_a_short_sleep(self):
        policy = gang.GangPolicy(CONFIG)
        self.decide(vm('a'), vm('b'), policy=policy)
        decision = self.decide(
            vm('a'), vm('b', sample=busy(part=0.1)), ticks=3, policy=policy
        )
        self.assertIsNotNone(decision.windows)

    def test_windows_end_after_a_long_sleep(self):
        policy = gang.GangPolicy(CONFIG)
        self.decide(vm('a'), vm('b'), policy=policy)
        decision = self.decide(
            vm('a'), vm('b', sample=busy(part=0.02)), ticks=90, policy=policy
        )
        self.assertIsNone(decision.windows)

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

    def test_members_that_fit_side_by_side_share_a_window(self):
        windows = self.decide(
            vm('p', cluster='x', vcpus=1),
            vm('q', cluster='x', vcpus=1),
            vm('b'),
        ).windows
        self.assertEqual(
            {frozenset({'p', 'q'}), frozenset({'b'})},
            {turn.favoured for turn in windows.turns},
        )

    def test_openmp_members_that_do_not_fit_have_a_window_each(self):
        windows = self.decide(
            *(
                vm(uuid, cluster='x', paradigm=model.Paradigm.OPENMP)
                for uuid in 'pq'
            )
        ).windows
        self.assertEqual(
            {frozenset({'p'}), frozenset({'q'})},
            {turn.favoured for turn in windows.turns},
        )

    def test_mpi_members_that_do_not_fit_have_no_windows(self):
        # Each would wait for the windows of the other.
        for paradigm in (model.Paradigm.MPI, model.Paradigm.HYBRID):
            decision = self.decide(
                *(vm(uuid, cluster='x', paradigm=paradigm) for uuid in 'pq')
            )
            self.assertIsNone(decision.windows)

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
        slots = {'x': model.ClusterSlot(1, 4)}
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
            slots={'x': model.ClusterSlot(1, 4)},
        ).windows
        for uuid in '123':
            self.assertAlmostEqual(
                1 / 3, self.part_favoured(windows, uuid), delta=0.02
            )

    def test_no_gang_lacks_time_because_hosts_agreed_on_something(self):
        # The other gang would get nothing.
        windows = self.decide(
            vm('1', cluster='x'),
            vm('2'),
            slots={'x': model.ClusterSlot(0, 1)},
        ).windows
        self.assertAlmostEqual(0.5, self.part_favoured(windows, '2'), 2)

    def test_single_vcpu_of_a_cluster_waits_for_other_hosts_to_agree(self):
        lone = vm('1', cluster='x', vcpus=1)
        others = (hog('h'),)
        decision = self.decide(lone, others=others)
        self.assertIsNone(decision.windows)
        self.assertIn('needs no windows', decision.vms['1'].reason)
        (asked,) = decision.gangs
        self.assertEqual(('x', 1), asked[:2])
        agreed = self.decide(
            lone, others=others, slots={'x': model.ClusterSlot(1, 2)}
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

    def test_pauses_are_as_long_as_hogs_are_entitled_to(self):
        for number in (1, 2, 4):
            windows = self.decide(
                vm('a'),
                vm('b'),
                others=tuple(hog(str(n)) for n in range(number)),
            ).windows
            self.assertAlmostEqual(
                number / (number + 2), self.part_of_pauses(windows), delta=0.03
            )

    def test_heavier_hog_gets_longer_pauses(self):
        light = self.decide(vm('a'), others=(hog('h'),)).windows
        heavy = self.decide(vm('a'), others=(hog('h', shares=4096),)).windows
        self.assertAlmostEqual(0.5, self.part_of_pauses(light), delta=0.03)
        self.assertAlmostEqual(0.8, self.part_of_pauses(heavy), delta=0.03)

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

    def test_favoured_gang_outweighs_a_hog(self):
        windows = self.decide(
            vm('a'), vm('b'), others=(hog('h', shares=4_096),)
        ).windows
        for turn in windows.turns:
            for uuid in turn.favoured:
                self.assertEqual(CONFIG.gang_favour * 4_096, turn.shares[uuid])

    def test_gangs_alone_leave_next_to_nothing_to_idle_groups(self):
        windows = self.decide(vm('a'), vm('b')).windows
        for turn in windows.turns:
            (uuid,) = turn.favoured
            self.assertEqual(40 * 1_024, turn.shares[uuid])

    def test_favoured_gang_weighs_what_all_gangs_do_beside_a_sleeper(self):
        windows = self.decide(
            vm('a'), vm('b'), others=(hog('w', part=0.2),)
        ).windows
        for turn in windows.turns:
            for uuid in turn.favoured:
                self.assertEqual(2_048, turn.shares[uuid])

    def test_sleeping_vm_can_get_three_times_the_time_it_uses(self):
        # Its vCPUs run for 10% of the time; a gang has two CPUs.
        windows = self.decide(
            vm('a'), vm('b'), others=(hog('h'), hog('w', part=0.2))
        ).windows
        for turn in windows.turns:
            for uuid in turn.favoured:
                weight = turn.shares[uuid] / 2
                self.assertAlmostEqual(3 * 0.1, 1_024 / (1_024 + weight), 2)

    def test_no_windows_beside_a_busy_server_and_a_hog(self):
        # With the weight that serves the one, gangs cannot outweigh the other.
        decision = self.decide(
            vm('a'), vm('b'), others=(hog('h'), hog('w', part=0.6))
        )
        self.assertIsNone(decision.windows)
        self.assertEqual(
            'no windows: they would delay VMs that are busy and sleep at '
            'times',
            decision.vms['a'].reason,
        )

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
            received(vm('a'), 1.2),
            others=(received(hog('h'), 0.8),),
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
