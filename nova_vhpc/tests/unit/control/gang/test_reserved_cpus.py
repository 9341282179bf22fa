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

"""How many CPUs are reserved for CPU-bound VMs, and for how long."""

import dataclasses
from unittest import mock

import hypothesis
from hypothesis import strategies

from nova_vhpc.control import fair_share, model
from nova_vhpc.control.gang import (
    competitors,
    demand,
    entitlement,
    reserved_cpus,
)
from nova_vhpc.tests import base


def other(fair, vcpus, cpus=16, uuid='h', weight=1_024.0, reach=None):
    """Return a CPU-bound VM that competes with gangs alone."""
    pause = float(min(vcpus, len(reach or range(cpus))))
    return entitlement.CpuBoundVm(
        uuid,
        vcpus,
        fair_share.Demand(weight, float(vcpus), reach),
        fair,
        pause,
        weight / pause,
    )


def need(fair=2.0, awake=2, widths=(4,) * 8, cpus=16, clear=0, more=()):
    """Return the demand beside one VM that may run on all CPUs."""
    others = ((other(fair, awake, cpus),) if awake else ()) + more
    asked = sum(one.fair_cpus for one in others)
    order = min(int(asked) + 1, sum(one.vcpus for one in others))
    return reserved_cpus.ReservationDemand(
        frozenset(range(cpus)),
        tuple((width,) for width in widths),
        others,
        tuple(cpus - 1 - number for number in range(order)),
        frozenset(range(min(sum(widths), cpus - clear), cpus)),
    )


NEEDS = strategies.builds(
    need,
    cpus=strategies.just(24),
    widths=strategies.lists(
        strategies.integers(1, 24), min_size=1, max_size=12
    ).map(tuple),
    fair=strategies.floats(0, 24),
    awake=strategies.integers(0, 60),
)


class TestReservationDemand(base.TestCase):
    def test_two_busy_vcpus_beside_narrow_gangs(self):
        self.assertEqual(2, need().best_count(0))

    def test_without_cpu_bound_vms_none_are_reserved(self):
        self.assertEqual(0, need(0.0, 0).best_count(0))
        self.assertEqual(
            0,
            reserved_cpus.ReservationDemand(frozenset(range(16))).best_count(
                0
            ),
        )

    def test_gangs_as_wide_as_the_host_leave_none(self):
        self.assertEqual(0, need(widths=(16, 16)).best_count(0))

    def test_no_more_than_the_widest_gang_leaves(self):
        self.assertEqual(1, need(1.0, 1, widths=(15, 15)).best_count(0))
        self.assertEqual(0, need(1.0, 1, widths=(15, 16)).best_count(0))

    def test_vms_that_find_free_cpus_anyhow_get_none(self):
        self.assertEqual(0, need(widths=(4, 4, 4)).best_count(None))

    def test_hardly_more_cpus_than_the_fair_part(self):
        # Of eight busy vCPUs, on what is fair for three.
        self.assertLessEqual(need(3.0, 8).best_count(0), 4)

    def test_one_vcpu_beside_as_many_as_there_are_cpus(self):
        # Four gangs of four on eight CPUs: what is left for the wide one does
        # it good, but the other one shares what is left with it.
        wide = (other(1.4, 8, 8, 'w'),)
        one = need(1.0, 1, (4,) * 4, 8, more=wide)
        self.assertLess(one.efficiency(0), 0.1)
        self.assertLess(one.efficiency(1), 0.1)
        self.assertGreater(one.efficiency(2), 0.3)
        self.assertGreaterEqual(one.best_count(0), 2)

    def test_members_that_fit_side_by_side_no_more(self):
        # Two turns of a half each are worth more than pauses.
        one = reserved_cpus.ReservationDemand(
            frozenset(range(8)),
            ((4, 4),),
            (other(1.0, 1, 8), other(2.0, 8, 8, 'w')),
            (7, 6, 5, 4),
        )
        self.assertGreater(one.best_count(0), 2)

    def test_small_gain_reserves_none(self):
        # A CPU of four would be lost for less than half of one.
        self.assertEqual(
            0, need(0.4, 4, widths=(2,) * 4, cpus=4).best_count(0)
        )

    def test_reserved_cpus_stay_while_about_as_good(self):
        self.assertEqual(2, need(1.6, 2, clear=2).best_count(2))
        self.assertEqual(2, need(1.1, 2, clear=2).best_count(2))

    def test_cpus_that_no_vm_needs_any_more_are_released(self):
        self.assertEqual(0, need(0.0, 0).best_count(2))
        self.assertEqual(0, need(widths=(16,)).best_count(2))

    @hypothesis.given(NEEDS, strategies.integers(0, 30))
    def test_gangs_keep_room_and_nobody_gets_much_more_than_fair(
        self, one, now
    ):
        best = one.best_count(now)
        self.assertGreaterEqual(best, 0)
        self.assertLessEqual(best, 24 - max(map(max, one.cluster_vcpus)))
        fair = sum(other.fair_cpus for other in one.cpu_bound_vms)
        self.assertLessEqual(best, fair + 1)

    @hypothesis.given(NEEDS, strategies.integers(0, 30))
    def test_efficiency_is_between_zero_and_one(self, one, clear):
        self.assertGreaterEqual(one.efficiency(clear), 0)
        self.assertLessEqual(one.efficiency(clear), 1)

    @hypothesis.given(NEEDS)
    def test_best_count_is_stable(self, one):
        best = one.best_count(None)
        gangs = sum(size for (size,) in one.cluster_vcpus)
        free = frozenset(range(min(gangs, 24 - best), 24))
        self.assertEqual(
            best,
            dataclasses.replace(one, gang_free_cpus=free).best_count(best),
        )


class TestCandidates(base.TestCase):
    """For which VMs CPUs are reserved, and which ones."""

    def spinning(self, uuid, vcpus, pins=None, weight=1_024):
        half = (50_000.0,) * vcpus
        sample = model.Sample(
            vcpu_run_us=half, vcpu_wait_us=half, elapsed_us=100_000.0
        )
        return model.OtherVm(uuid, vcpus, weight, sample, None, pins)

    def need(self, *others, gangs=3, wide=8, pinned=(), clear=()):
        """Beside gangs on the first of eight CPUs.

        :param gangs: each of which weighs as much as any of the others.
        """
        host = frozenset(range(8))
        demand_tracker = demand.DemandTracker()
        for _ in range(30):
            demand_tracker.advance(others)
        members = {f'm{number}': wide for number in range(gangs)}
        vms = tuple(model.VmView(*member) for member in members.items())
        view = model.HostView(
            1,
            0,
            100_000,
            tuple(model.Cpu(number) for number in range(8)),
            vms,
            others=others,
        )
        cpus = frozenset(range(wide))
        competition = competitors.Competition(
            frozenset(members),
            frozenset(one.uuid for one in others),
            cpus,
            dict.fromkeys(members, cpus),
            wide,
            fair_share.own_weights(view),
            host,
            {one.uuid: one.vcpu_pins for one in others if one.vcpu_pins},
        )
        return reserved_cpus.reservation_demand(
            view,
            competition,
            demand_tracker,
            entitlement.cpu_bound_vms(view, competition, demand_tracker),
            vms,
            {*members, *pinned},
            frozenset(clear),
        )

    def test_as_many_cpus_as_are_fair_and_one_for_any_number_of_vcpus(self):
        for vcpus in range(3, 13):
            found = self.need(self.spinning('h', vcpus))
            self.assertAlmostEqual(2.0, found.cpu_bound_vms[0].fair_cpus)
            self.assertEqual((7, 6, 5), found.candidate_cpus, vcpus)

    def test_no_more_cpus_than_vcpus(self):
        self.assertEqual((7,), self.need(self.spinning('h', 1)).candidate_cpus)

    def test_reserved_cpus_come_first(self):
        found = self.need(self.spinning('h', 8), clear={1, 2})
        self.assertEqual((2, 1, 7), found.candidate_cpus)

    def test_only_allowed_cpus_are_candidates(self):
        pins = (frozenset({0, 1}), frozenset({0, 1, 9}))
        found = self.need(self.spinning('h', 2, pins))
        self.assertEqual((1, 0), found.candidate_cpus)

    def test_cpu_beyond_the_fair_part_comes_later(self):
        # A third of one for who is bound to the last, and eight thirds.
        bound = self.spinning('b', 1, (frozenset({7}),))
        heavy = self.spinning('h', 8, weight=8 * 1_024)
        found = self.need(bound, heavy, gangs=15)
        self.assertEqual((6, 5, 7, 4), found.candidate_cpus)

    def test_pinned_vms_need_none(self):
        others = self.spinning('h', 2), self.spinning('p', 2)
        self.assertEqual(
            ['h'],
            [one.uuid for one in self.need(*others, pinned='p').cpu_bound_vms],
        )
        self.assertEqual((), self.need(*others, pinned='hp').candidate_cpus)

    def test_cpus_without_gangs_are_free(self):
        found = self.need(self.spinning('h', 2), wide=6)
        self.assertEqual({6, 7}, found.gang_free_cpus)


class TestReservedCpus(base.TestCase):
    def test_two_evaluations_must_agree(self):
        reserved = reserved_cpus.ReservedCpus(1)
        for one, clear in (
            (need(), 0),
            (need(0.0, 0), 0),
            (need(), 0),
            (need(), 2),
            (need(0.0, 0), 2),
            (need(0.0, 0), 0),
        ):
            reserved.evaluate(one)
            self.assertEqual(clear, len(reserved.cpus))

    def test_choice_that_alternates_changes_ever_less_often(self):
        reserved = reserved_cpus.ReservedCpus(1)
        changes = []
        for look in range(600):
            before = reserved.cpus
            clear = len(before)
            reserved.evaluate(
                need(clear=clear)
                if look // 3 % 2
                else need(0.0, 0, clear=clear)
            )
            if reserved.cpus != before:
                changes.append(look)
        self.assertLess(len(changes), 6)
        for _ in range(reserved_cpus.MAX_AGREEMENT):
            reserved.evaluate(need(clear=len(reserved.cpus)))
        self.assertEqual({14, 15}, reserved.cpus)

    def test_choice_that_cycles_changes_ever_less_often(self):
        # Each of three sets makes another one look best.
        reserved = reserved_cpus.ReservedCpus(1)
        after = {0: (3, 2), 2: (3, 2, 5, 4), 4: ()}
        changes = 0
        for _ in range(600):
            before = reserved.cpus
            best = after[len(before)]
            one = mock.Mock(candidate_cpus=best)
            one.best_count.return_value = len(best)
            reserved.evaluate(one)
            changes += reserved.cpus != before
        self.assertLess(changes, 20)

    def test_choice_that_has_lasted_changes_soon_again(self):
        reserved = reserved_cpus.ReservedCpus(1)
        for one in (need(), need(0.0, 0)) * 8:
            for _ in range(2 * reserved_cpus.MAX_AGREEMENT):
                reserved.evaluate(one)
        self.assertEqual(set(), reserved.cpus)
        for _ in range(2):
            reserved.evaluate(need())
        self.assertEqual({14, 15}, reserved.cpus)

    def test_reserved_cpus_follow_where_vms_may_run(self):
        # Two are bound to the first CPUs: those are left clear, and not the
        # last ones, where they cannot be.
        there = reserved_cpus.ReservationDemand(
            frozenset(range(16)),
            ((4,),) * 8,
            (other(2.0, 2, reach=frozenset(range(8))),),
            (3, 2),
        )
        reserved = reserved_cpus.ReservedCpus(1)
        reserved.evaluate(need())
        reserved.evaluate(need())
        self.assertEqual({14, 15}, reserved.cpus)
        for _ in range(2):
            reserved.evaluate(there)
        self.assertEqual({2, 3}, reserved.cpus)

    def test_evaluations_are_rare(self):
        reserved = reserved_cpus.ReservedCpus(50)
        self.assertEqual(4, sum(reserved.is_due() for _ in range(200)))


class TestWidths(base.TestCase):
    def widths(self, *vms, cpus=8):
        return reserved_cpus.gang_widths(
            reserved_cpus.cluster_vcpus(
                model.VmView(f'vm{number}', vcpus, cluster=cluster)
                for number, (vcpus, cluster) in enumerate(vms)
            ),
            cpus,
        )

    def test_members_side_by_side(self):
        self.assertEqual(
            [6, 3, 3], self.widths((4, 'a'), (3, None), (2, 'a'), (3, None))
        )

    def test_members_that_do_not_fit_are_gangs_of_their_own(self):
        self.assertEqual([6, 6], self.widths((6, 'a'), (6, 'a')))

    def test_members_may_not_fit_on_fewer_cpus(self):
        self.assertEqual([8], self.widths((4, 'a'), (4, 'a')))
        self.assertEqual([4, 4], self.widths((4, 'a'), (4, 'a'), cpus=7))

    def test_gang_is_no_wider_than_the_host(self):
        self.assertEqual([8], self.widths((20, None)))
