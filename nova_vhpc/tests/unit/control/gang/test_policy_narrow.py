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
from nova_vhpc.tests.unit.control.gang import test_policy
from nova_vhpc.tests.unit.control.gang.test_policy import hog, vm, weighing

SHARES = 1_024


def cpus(number):
    return tuple(model.Cpu(n) for n in range(number))


def places(areas, gangs, wide):
    """Pins of VMs as wide as the area of the host that they share.

    :param areas: parts of the host that share no CPU.
    :param gangs: VMs in each of them.
    """
    return {
        f'{area}.{one}': tuple(
            frozenset({area * wide + cpu}) for cpu in range(wide)
        )
        for area in range(areas)
        for one in range(gangs)
    }


class NarrowTestCase(test_policy.GangTestCase):
    def windows(self, areas, gangs, wide, hogs):
        """
        :param hogs: other VMs, of one vCPU each.
        """
        pins = places(areas, gangs, wide)
        return self.decide(
            *(vm(uuid, vcpus=wide) for uuid in pins),
            others=tuple(hog(f'h{n}', vcpus=1) for n in range(hogs)),
            cpus=cpus(areas * wide),
            pins=pins,
        ).windows

    def of_a_cpu(self, windows, wide):
        """What a hog gets of a CPU of the first area, with weights alone."""
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
    def test_one_vcpu_beside_gangs_on_all_cpus(self):
        # Two thirds of a CPU are a third of the host. A pause for so long
        # would give it a third of a CPU.
        windows = self.windows(1, gangs=2, wide=2, hogs=1)
        self.assertAlmostEqual(2 / 3, self.of_a_cpu(windows, 2), delta=0.02)

    @hypothesis.given(
        strategies.integers(2, 16),
        strategies.integers(1, 4),
        strategies.integers(1, 20),
    )
    @hypothesis.settings(deadline=None)
    def test_they_lose_a_tenth_at_most_and_gangs_have_windows(
        self, wide, gangs, hogs
    ):
        windows = self.windows(1, gangs, wide, hogs)
        hog = fair_share.Demand(SHARES, 1.0)
        gang = fair_share.Demand(SHARES, float(wide))
        fair = fair_share.fair_cpus({hog: hogs, gang: gangs}, wide)
        on_cpus = min(hogs, wide)
        theirs = hogs * fair[hog] / on_cpus
        got = 0.0
        for turn in windows.turns:
            others = sum(turn.shares.values()) / wide
            weight = SHARES * hogs / on_cpus
            got += turn.width_us * weight / (weight + others)
        got /= windows.cycle_us
        self.assertGreater(got, 0.9 * theirs)
        self.assertLess(got, theirs + 0.03)
        for one in range(gangs):
            self.assertGreater(self.part_favoured(windows, f'0.{one}'), 0)


class TestBesideWide(NarrowTestCase):
    """One vCPU, and as many as there are CPUs: all VMs weigh the same."""

    def shares_of(self, others, areas=1, wide=8):
        """Windows, and weights that a gang has in its own."""
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

    def test_pauses_are_as_long_as_the_one_needs(self):
        wide = hog('w', vcpus=8)
        for others, pauses in (
            ((wide,), 1 / 3),
            ((hog('n', vcpus=1), wide), 0.92),
            # A fifth of a CPU is fair for it.
            ((hog('n', vcpus=1, shares=80), wide), 1 / 3),
        ):
            found, _ = self.shares_of(others)
            self.assertAlmostEqual(pauses, found, delta=0.05)

    def test_gangs_yield_to_whoever_needs_most(self):
        # One of four areas is touched by each of them.
        light = hog('l', vcpus=1, shares=100)
        _, (alone,) = self.shares_of((hog('n', vcpus=1),), 4, 2)
        _, (both,) = self.shares_of((hog('n', vcpus=1), light), 4, 2)
        _, (little,) = self.shares_of((light,), 4, 2)
        self.assertAlmostEqual(alone, both, delta=0.15 * alone)
        self.assertLess(alone, 2 * SHARES)
        self.assertNotEqual(alone, little)

    def test_a_gang_with_its_cpus_to_itself_yields_too(self):
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
    """The kernel counts as waiting what a quota holds back."""

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

    def test_no_more_pauses_than_it_may_use(self):
        for share, pauses in ((None, 0.9), (0.5, 0.45), (0.05, 0.0)):
            one = dataclasses.replace(hog('h', vcpus=1), share=share)
            self.assertAlmostEqual(
                pauses, self.pauses(others=(one,)), delta=0.05
            )

    def test_whether_it_has_opted_in_or_not(self):
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

    def test_nobody_pauses_for_one_hog(self):
        windows = self.windows(4, gangs=2, wide=4, hogs=1)
        for turn in windows.turns:
            self.assertEqual(4, len(turn.favoured))
        got = self.of_a_cpu(windows, 4)
        self.assertGreater(got, 0.9)

    def test_where_there_is_none_the_favoured_one_has_the_cpus(self):
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

    def test_who_sleeps_gets_three_times_what_it_uses_as_ever(self):
        windows = self.beside(
            hog('h', vcpus=1, shares=9_999), hog('w', part=0.4)
        )
        # Its vCPUs run for 20% of the time.
        for turn in windows.turns:
            for uuid in turn.favoured:
                self.assertAlmostEqual(
                    turn.shares[uuid] / 2, SHARES * (1 / 0.6 - 1), delta=1
                )

    def test_beside_who_uses_much_gangs_weigh_what_they_always_weigh(self):
        # Its vCPUs run for 40% of the time: three times that is more than
        # there is, and no reason to favour nobody.
        windows = self.beside(
            hog('h', vcpus=1, shares=9_999), hog('w', part=0.8)
        )
        for turn in windows.turns:
            self.assertEqual(
                {SHARES}, {turn.shares[uuid] for uuid in turn.favoured}
            )

    def test_a_window_is_one_whoever_else_there_is(self):
        # Who says that its answers are urgent is no hog, though it runs all
        # the time; and a hog of next to no weight asks for little.
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

    def test_one_for_each_gang_and_all_pause(self):
        windows = self.windows(4, gangs=2, wide=4, hogs=4)
        self.assertTrue(any(not turn.favoured for turn in windows.turns))
        self.assertGreater(self.of_a_cpu(windows, 4), 0.9)

    def test_cpus_without_gangs_serve_them_first(self):
        pins = dict.fromkeys('ab', test_policy.APART)
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

    def test_a_steady_claim_makes_a_steady_schedule(self):
        pins = places(areas=4, gangs=2, wide=2)
        policy = test_policy.gang.GangPolicy(test_policy.CONFIG)
        seen = set()
        for tick in range(40):
            windows = self.decide(
                *(vm(uuid) for uuid in pins),
                others=(
                    hog('h', vcpus=1, shares=100),
                    # Wants a little more and a little less.
                    hog('w', vcpus=1, part=0.2 + 0.01 * (tick % 2)),
                ),
                cpus=cpus(8),
                pins=pins,
                policy=policy,
                ticks=40 if not tick else 1,
            ).windows
            seen.add(tuple(sorted(windows.turns[0].shares.items())))
        self.assertEqual(1, len(seen))


class TestSteady(NarrowTestCase):
    """Small changes of demand do not make a new schedule every period."""

    def schedules(self, sample_of_tick):
        """
        :param sample_of_tick: run and wait, as parts, of the other VM's vCPUs.
        :returns: those of 80 ticks, once the VM is known.
        """
        pins = places(areas=4, gangs=2, wide=4)
        policy = test_policy.gang.GangPolicy(test_policy.CONFIG)
        seen = []
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
            seen.append(decision.windows)
        return seen[80:]

    def test_a_vcpu_that_sleeps_beside_one_that_does_not(self):
        seen = self.schedules(
            lambda tick: ((0.2, 0.8), (0.1 + tick % 7 * 0.03, 0.02))
        )
        self.assertEqual([], [one for one in seen if one != seen[0]])

    def test_one_at_the_edge_of_sleeping(self):
        # The fourth would make it one for each area.
        seen = self.schedules(
            lambda tick: (
                *((0.2, 0.8),) * 3,
                (0.3, 0.58 if tick // 10 % 2 else 0.52),
            )
        )
        self.assertEqual(
            1,
            len({any(not turn.favoured for turn in w.turns) for w in seen}),
        )


class TestNobodyIsFavouredOutOfTurn(NarrowTestCase):
    def test_however_little_a_heavy_one_is_to_weigh(self):
        # What is fair is the same for all gangs, by the host as a whole.
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
