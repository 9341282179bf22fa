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


"""Gang windows beside VMs that never sleep and cannot use all CPUs."""

import dataclasses

import hypothesis
from hypothesis import strategies

from nova_vhpc.control import fair_share, model
from nova_vhpc.control.gang import policy as gang_policy
from nova_vhpc.tests.unit.control.gang.policy_case import (
    APART,
    CONFIG,
    GangTestCase,
    hog,
    vm,
    weighing,
)

SHARES = 1_024


def cpus(number):
    return tuple(model.Cpu(n) for n in range(number))


def places(areas, gangs, wide):
    """Return pins of VMs, each on all CPUs of one area of the host.

    :param areas: number of parts of the host that share no CPU.
    :param gangs: number of VMs in each area.
    :param wide: CPUs of an area, and vCPUs of a VM.
    """
    return {
        f'{area}.{one}': tuple(
            frozenset({area * wide + cpu}) for cpu in range(wide)
        )
        for area in range(areas)
        for one in range(gangs)
    }


class NarrowTestCase(GangTestCase):
    def windows(self, areas, gangs, wide, hogs):
        """Return the windows of such gangs beside hogs.

        :param hogs: number of hogs, of one vCPU each.
        """
        pins = places(areas, gangs, wide)
        return self.decide(
            *(vm(uuid, vcpus=wide) for uuid in pins),
            others=tuple(hog(f'h{n}', vcpus=1) for n in range(hogs)),
            cpus=cpus(areas * wide),
            pins=pins,
        ).windows

    def of_a_cpu(self, windows, wide):
        """Return the part of a CPU of the first area that a hog gets."""
        got = 0.0
        for turn in windows.turns:
            others = sum(
                shares / wide
                for uuid, shares in turn.shares.items()
                if uuid.startswith('0.')
            )
            got += turn.width_us * SHARES / (SHARES + others)
        return got / windows.cycle_us


class TestAllGangsTouched(NarrowTestCase):
    def test_hog_of_one_vcpu_gets_two_thirds_of_a_cpu_beside_two_gangs(self):
        # Two thirds of a CPU are a third of the host. Pauses for a third of
        # the time alone would give the hog only a third of a CPU.
        windows = self.windows(1, gangs=2, wide=2, hogs=1)
        self.assertAlmostEqual(2 / 3, self.of_a_cpu(windows, 2), delta=0.02)

    @hypothesis.given(
        strategies.integers(2, 16),
        strategies.integers(1, 4),
        strategies.integers(1, 20),
    )
    @hypothesis.settings(deadline=None)
    def test_hogs_lose_a_tenth_at_most_and_all_gangs_have_windows(
        self, wide, gangs, hogs
    ):
        windows = self.windows(1, gangs, wide, hogs)
        hog = fair_share.Demand(SHARES, 1.0)
        gang = fair_share.Demand(SHARES, float(wide))
        fair = fair_share.fair_cpus({hog: hogs, gang: gangs}, wide)
        on_cpus = min(hogs, wide)
        fair_part = hogs * fair[hog] / on_cpus
        got = 0.0
        for turn in windows.turns:
            others = sum(turn.shares.values()) / wide
            weight = SHARES * hogs / on_cpus
            got += turn.width_us * weight / (weight + others)
        got /= windows.cycle_us
        self.assertGreater(got, 0.9 * fair_part)
        self.assertLess(got, fair_part + 0.03)
        for one in range(gangs):
            self.assertGreater(self.part_favoured(windows, f'0.{one}'), 0)


class TestBesideWide(NarrowTestCase):
    """Hogs of one vCPU and of a vCPU per CPU; all VMs weigh the same."""

    def shares_of(self, others, areas=1, wide=8):
        """Return the part of pauses, and the weights of favoured gangs."""
        pins = places(areas, gangs=2, wide=wide)
        windows = self.decide(
            *(vm(uuid, vcpus=wide) for uuid in pins),
            others=others,
            cpus=cpus(areas * wide),
            pins=pins,
        ).windows
        pauses = sum(
            turn.width_us for turn in windows.turns if not turn.favoured
        )
        return pauses / windows.cycle_us, {
            turn.shares[uuid]
            for turn in windows.turns
            for uuid in turn.favoured
        }

    def test_pauses_are_as_long_as_the_neediest_hog_requires(self):
        wide = hog('w', vcpus=8)
        for others, pauses in (
            ((wide,), 1 / 3),
            ((hog('n', vcpus=1), wide), 0.92),
            # The fair share of this narrow hog is a fifth of a CPU.
            ((hog('n', vcpus=1, shares=80), wide), 1 / 3),
        ):
            part, _ = self.shares_of(others)
            self.assertAlmostEqual(pauses, part, delta=0.05)

    def test_gangs_yield_to_the_hog_that_needs_most(self):
        # Each hog runs in one of the four areas.
        light = hog('l', vcpus=1, shares=100)
        _, (alone,) = self.shares_of((hog('n', vcpus=1),), 4, 2)
        _, (both,) = self.shares_of((hog('n', vcpus=1), light), 4, 2)
        _, (little,) = self.shares_of((light,), 4, 2)
        self.assertAlmostEqual(alone, both, delta=0.15 * alone)
        self.assertLess(alone, 2 * SHARES)
        self.assertNotEqual(alone, little)

    def test_gang_alone_on_its_cpus_yields_to_a_hog(self):
        pins = places(areas=4, gangs=1, wide=2)
        windows = self.decide(
            *(vm(uuid) for uuid in pins),
            others=(
                dataclasses.replace(
                    hog('h', vcpus=1),
                    vcpu_pins=(frozenset({0, 1}),),
                ),
            ),
            cpus=cpus(8),
            pins=pins,
        ).windows
        (turn,) = windows.turns
        self.assertEqual({'0.0'}, turn.favoured)
        self.assertGreater(SHARES / (SHARES + turn.shares['0.0'] / 2), 0.9)


class TestQuota(NarrowTestCase):
    """Time held back by a quota counts as waiting in the kernel."""

    def pauses(self, vms=(), others=()):
        pins = places(areas=1, gangs=2, wide=8)
        windows = self.decide(
            *(vm(uuid, vcpus=8) for uuid in pins),
            *vms,
            others=others,
            cpus=cpus(8),
            pins=pins,
        ).windows
        return sum(
            turn.width_us for turn in windows.turns if not turn.favoured
        ) / (windows.cycle_us)

    def test_pauses_are_no_longer_than_the_quota_allows(self):
        for share, pauses in ((None, 0.9), (0.5, 0.45), (0.05, 0.0)):
            one = dataclasses.replace(hog('h', vcpus=1), share=share)
            self.assertAlmostEqual(
                pauses, self.pauses(others=(one,)), delta=0.05
            )

    def test_no_pause_for_a_managed_vm_with_a_small_quota(self):
        one = vm(
            'h',
            vcpus=1,
            workload=model.Workload.GENERAL,
            sample=hog('h', vcpus=1).sample,
            original=model.CpuTune(100_000, 5_000, SHARES),
        )
        self.assertEqual(0.0, self.pauses(vms=(one,)))


class TestFewGangsTouched(NarrowTestCase):
    """Four areas of four CPUs, each with two gangs."""

    def test_no_gang_pauses_for_one_hog(self):
        windows = self.windows(4, gangs=2, wide=4, hogs=1)
        for turn in windows.turns:
            self.assertEqual(4, len(turn.favoured))
        got = self.of_a_cpu(windows, 4)
        self.assertGreater(got, 0.9)

    def test_favoured_gang_outweighs_the_other_in_each_area(self):
        (turn, _) = self.windows(4, gangs=2, wide=4, hogs=1).turns
        for area in range(4):
            first, second = sorted(
                turn.shares[f'{area}.{one}'] for one in range(2)
            )
            self.assertGreater(second, 10 * first)

    def beside(self, *others):
        """Windows of four areas of two CPUs, each with two gangs."""
        pins = places(areas=4, gangs=2, wide=2)
        return self.decide(
            *(vm(uuid) for uuid in pins),
            others=others,
            cpus=cpus(8),
            pins=pins,
        ).windows

    def test_sleeping_vm_can_get_three_times_the_time_it_uses(self):
        windows = self.beside(
            hog('h', vcpus=1, shares=9_999), hog('w', part=0.4)
        )
        # Its vCPUs run for 20% of the time.
        for turn in windows.turns:
            for uuid in turn.favoured:
                self.assertAlmostEqual(
                    turn.shares[uuid] / 2, SHARES * (1 / 0.6 - 1), delta=1
                )

    def test_gangs_keep_their_weight_beside_a_busy_sleeper(self):
        # Its vCPUs run for 40% of the time: three times that is more than all
        # time, which is no reason to favour no gang.
        windows = self.beside(
            hog('h', vcpus=1, shares=9_999), hog('w', part=0.8)
        )
        for turn in windows.turns:
            self.assertEqual(
                {SHARES}, {turn.shares[uuid] for uuid in turn.favoured}
            )

    def test_favoured_gangs_outweigh_waiting_ones_beside_an_urgent_vm(self):
        # A latency VM is no hog, though it runs all the time; and the fair
        # share of a hog of little weight is small.
        pins = places(areas=4, gangs=2, wide=2)
        urgent = vm('u', vcpus=1, workload=model.Workload.LATENCY)
        for hog_shares in (2, SHARES):
            windows = self.decide(
                *(vm(uuid) for uuid in pins),
                urgent,
                others=(hog('h', vcpus=1, shares=hog_shares),),
                cpus=cpus(8),
                pins=pins,
            ).windows
            for turn in windows.turns:
                favoured = {turn.shares[uuid] for uuid in turn.favoured}
                waiting = set(turn.shares.values()) - favoured
                self.assertGreaterEqual(min(favoured), 10 * max(waiting))

    def test_all_gangs_pause_if_each_area_has_a_hog(self):
        windows = self.windows(4, gangs=2, wide=4, hogs=4)
        self.assertTrue(any(not turn.favoured for turn in windows.turns))
        self.assertGreater(self.of_a_cpu(windows, 4), 0.9)

    def test_gangs_pause_only_if_hogs_exceed_the_cpus_without_gangs(self):
        pins = dict.fromkeys('ab', APART)
        for hogs, pauses in ((2, False), (3, True)):
            windows = self.decide(
                vm('a'),
                vm('b'),
                others=tuple(hog(f'h{n}', vcpus=1) for n in range(hogs)),
                cpus=cpus(4),
                pins=pins,
            ).windows
            self.assertEqual(
                pauses, any(not turn.favoured for turn in windows.turns)
            )

    def test_weights_stay_while_demand_varies_slightly(self):
        pins = places(areas=4, gangs=2, wide=2)
        policy = gang_policy.GangPolicy(CONFIG)
        weights = set()
        for tick in range(40):
            windows = self.decide(
                *(vm(uuid) for uuid in pins),
                others=(
                    hog('h', vcpus=1, shares=100),
                    # Its demand varies slightly.
                    hog('w', vcpus=1, part=0.2 + 0.01 * (tick % 2)),
                ),
                cpus=cpus(8),
                pins=pins,
                policy=policy,
                ticks=40 if not tick else 1,
            ).windows
            weights.add(tuple(sorted(windows.turns[0].shares.items())))
        self.assertEqual(1, len(weights))


class TestSteady(NarrowTestCase):
    """Small changes of demand do not make a new schedule every period."""

    def schedules(self, sample_of_tick):
        """Return the schedules beside a VM whose demand varies.

        :param sample_of_tick: returns run and wait of each vCPU of the
            unmanaged VM in a tick, as parts of the control period.
        :returns: schedules of the last 80 of 160 ticks.
        """
        pins = places(areas=4, gangs=2, wide=4)
        policy = gang_policy.GangPolicy(CONFIG)
        schedules = []
        for tick in range(160):
            parts = sample_of_tick(tick)
            other = model.OtherVm(
                'o',
                len(parts),
                SHARES,
                model.Sample(
                    vcpu_run_us=tuple(run * 1e5 for run, _ in parts),
                    vcpu_wait_us=tuple(wait * 1e5 for _, wait in parts),
                    elapsed_us=1e5,
                ),
            )
            decision = self.decide(
                *(vm(uuid, vcpus=4) for uuid in pins),
                others=(other,),
                cpus=cpus(16),
                pins=pins,
                policy=policy,
                ticks=1,
            )
            schedules.append(decision.windows)
        return schedules[80:]

    def test_schedule_stays_if_one_of_two_vcpus_sleeps_at_times(self):
        schedules = self.schedules(
            lambda tick: ((0.2, 0.8), (0.1 + tick % 7 * 0.03, 0.02))
        )
        self.assertEqual(schedules[:1] * 80, schedules)

    def test_pauses_stay_if_one_vcpu_is_almost_cpu_bound(self):
        # If the fourth vCPU counts as CPU-bound, there is one per area.
        schedules = self.schedules(
            lambda tick: (
                *((0.2, 0.8),) * 3,
                (0.3, 0.58 if tick // 10 % 2 else 0.52),
            )
        )
        self.assertEqual(
            1,
            len(
                {
                    any(not turn.favoured for turn in windows.turns)
                    for windows in schedules
                }
            ),
        )


class TestWeightsOutsideOfWindows(NarrowTestCase):
    def test_heavy_gang_weighs_more_in_its_window_than_outside(self):
        # All gangs yield to the hog alike, by the demand of the whole host.
        windows = self.decide(
            vm('a', original=weighing(262_144)),
            vm('b', original=weighing(2)),
            vm('c', original=weighing(2)),
            vm('d', original=weighing(2)),
            others=(hog('h', vcpus=1, shares=100),),
            cpus=cpus(4),
            pins={
                'a': (frozenset({0}), frozenset({1})),
                'b': (frozenset({0}), frozenset({1})),
                'c': (frozenset({2}), frozenset({3})),
                'd': (frozenset({2}), frozenset({3})),
            },
        ).windows
        (waits,) = {
            turn.shares['a']
            for turn in windows.turns
            if 'a' not in turn.favoured
        }
        for turn in windows.turns:
            if 'a' in turn.favoured:
                self.assertGreater(turn.shares['a'], waits)
