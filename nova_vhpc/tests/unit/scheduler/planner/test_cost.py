# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""The cost model against the papers, each claim with its table named."""

import dataclasses
import itertools

from hypothesis import given
from hypothesis import strategies as st

from nova_vhpc.flavor import extra_specs
from nova_vhpc.scheduler.planner import cost, cost_table
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.scheduler.planner.oracle import member_us

PAIRS = (1, 2, 3, 4)
MEASURED = ('exported', 'separate', 'shared')
BRIDGED = ('separate', 'shared', 'multiple-shared', 'shared-separate')


def remote_mb_s(network, pairs, link_mbps=1000):
    """Return the bandwidth of all pairs together, as in the tables."""
    return pairs * cost.remote_mb_s(network, pairs, pairs, link_mbps)


def local_mb_s(network, pairs, link_mbps=1000):
    return pairs * cost.local_mb_s(network, 2 * pairs, link_mbps)


class HpcVirtTable1Test(base.TestCase):
    """Latency at 1 byte, members on different hosts."""

    def test_latency_of_bridges_equals_the_table(self):
        for network in ('separate', 'shared'):
            for pairs in PAIRS:
                self.assertAlmostEqual(
                    cost_table.LATENCY_US[network][pairs - 1],
                    cost.remote_latency_us(network, pairs),
                )

    def test_exported_beats_the_bridges_when_no_cpu_is_left(self):
        latency = {n: cost.remote_latency_us(n, 4) for n in MEASURED}
        self.assertEqual('exported', min(latency, key=latency.get))

    def test_one_pair_shows_little_difference(self):
        latency = [cost.remote_latency_us(n, 1) for n in MEASURED]
        self.assertLess(max(latency) / min(latency), 1.25)


class HpcVirtTable3Test(base.TestCase):
    """Bandwidth, members on different hosts, one to four pairs."""

    def test_every_figure_equals_the_table(self):
        for network in (*MEASURED, 'native'):
            for pairs in PAIRS:
                self.assertAlmostEqual(
                    cost_table.REMOTE_MB_S[network][pairs - 1],
                    remote_mb_s(network, pairs),
                    msg=f'{network}, {pairs} pairs',
                )

    def test_winner_for_each_number_of_pairs(self):
        for pairs in PAIRS:
            ours = {n: remote_mb_s(n, pairs) for n in MEASURED}
            self.assertEqual('exported', max(ours, key=ours.get), pairs)

    def test_exported_is_within_5_percent_of_native_or_better(self):
        for pairs in PAIRS:
            self.assertGreaterEqual(
                remote_mb_s('exported', pairs),
                0.95 * remote_mb_s('native', pairs),
            )

    def test_one_pair_shows_no_significant_difference(self):
        ours = [remote_mb_s(n, 1) for n in (*MEASURED, 'native')]
        self.assertLess(max(ours) / min(ours), 1.1)

    def test_separate_beats_shared_by_half_from_two_pairs_on(self):
        # Section 6.2: "at least 50% improvement"; 48% at four pairs.
        for pairs in PAIRS[1:]:
            self.assertGreater(
                remote_mb_s('separate', pairs),
                1.47 * remote_mb_s('shared', pairs),
            )

    def test_three_pairs_separate_is_about_half_of_native(self):
        # Section 6.2: "almost 2 times slower ... 1.75 times faster than
        # the Shared Bridge".
        self.assertAlmostEqual(
            1.7,
            remote_mb_s('native', 3) / remote_mb_s('separate', 3),
            delta=0.1,
        )
        self.assertAlmostEqual(
            1.7,
            remote_mb_s('separate', 3) / remote_mb_s('shared', 3),
            delta=0.1,
        )

    def test_more_guests_than_measured_share_one_uplink_further(self):
        rates = [
            cost.remote_mb_s('shared', guests, 4) for guests in (4, 8, 16, 32)
        ]
        for many, few in itertools.pairwise(rates):
            self.assertAlmostEqual(many / 2, few)


class HpcVirtTable5Test(base.TestCase):
    """Bandwidth, members on one host, one and two pairs."""

    def test_every_figure_equals_the_table(self):
        for network in (*MEASURED, 'native'):
            for pairs in (1, 2):
                self.assertAlmostEqual(
                    cost_table.LOCAL_MB_S[network][pairs - 1],
                    local_mb_s(network, pairs),
                )

    def test_shared_wins_co_located(self):
        for pairs in (1, 2):
            ours = {n: local_mb_s(n, pairs) for n in MEASURED}
            self.assertEqual('shared', max(ours, key=ours.get))

    def test_separate_loses_co_located(self):
        for pairs in (1, 2):
            ours = {n: local_mb_s(n, pairs) for n in extra_specs.NETWORKS}
            self.assertEqual('separate', min(ours, key=ours.get))

    def test_separate_is_several_times_slower_than_shared(self):
        # Section 6.3: "an order of a magnitude slower" than native.
        self.assertGreater(
            local_mb_s('shared', 1), 4 * local_mb_s('separate', 1)
        )
        self.assertGreater(
            local_mb_s('native', 1), 10 * local_mb_s('separate', 1)
        )

    def test_both_mixed_configurations_use_the_shared_bridge(self):
        # Section 4, figures 2 and 3.
        for network in ('shared-separate', 'multiple-shared'):
            for pairs in (1, 2):
                self.assertAlmostEqual(
                    local_mb_s('shared', pairs), local_mb_s(network, pairs)
                )

    def test_shared_falls_with_pairs_and_the_others_rise(self):
        # Section 6.3: "Shared Bridge configuration sees a decline".
        self.assertLess(local_mb_s('shared', 2), local_mb_s('shared', 1))
        for network in ('exported', 'separate'):
            self.assertGreater(local_mb_s(network, 2), local_mb_s(network, 1))


class HpcVirtSection64Test(base.TestCase):
    """Whole programs (NPB) against native Linux."""

    def test_exported_is_within_5_percent_when_members_span_hosts(self):
        self.assertLess(cost.slowdown('exported', 4, 8), 1.05)
        # 8x2: "almost equal and at times better than native".
        self.assertAlmostEqual(
            1.0, cost.slowdown('exported', 2, 16), delta=0.02
        )

    def test_shared_separate_is_8_to_10_percent_slower(self):
        slowdown = cost.slowdown('shared-separate', 4, 8)
        self.assertGreaterEqual(slowdown, 1.08)
        self.assertLessEqual(slowdown, 1.10)

    def test_shared_loses_less_than_40_percent(self):
        self.assertLess(cost.slowdown('shared', 4, 8), 1.40)

    def test_order_on_2x4(self):
        # "Shared-Separate ... gives better results compared to other two
        # bridge configurations"
        slowdown = {n: cost.slowdown(n, 4, 8) for n in extra_specs.NETWORKS}
        ordered = sorted(slowdown, key=slowdown.get)
        self.assertEqual(['exported', 'shared-separate'], ordered[:2])

    def test_separate_and_shared_are_close_on_2x4(self):
        # "The slow performance of Separate Bridges ... is a surprise", by no
        # figure: tables 3 and 5 leave the two within 2%, and nothing is
        # fitted to hide that (doc/source/admin/cost-model.rst).
        self.assertAlmostEqual(
            cost.slowdown('separate', 4, 8),
            cost.slowdown('shared', 4, 8),
            delta=0.02,
        )
        # When all are co-located, table 5 decides.
        self.assertGreater(
            cost.slowdown('separate', 4, 4), cost.slowdown('shared', 4, 4)
        )

    def test_order_on_8x2(self):
        # "Shared Bridge and Separate Bridge ... similar", Multiple-Shared
        # "slightly better", Shared-Separate "excellent".
        slowdown = {n: cost.slowdown(n, 2, 16) for n in extra_specs.NETWORKS}
        self.assertAlmostEqual(
            slowdown['shared'], slowdown['separate'], delta=0.02
        )
        worse = min(slowdown['shared'], slowdown['separate'])
        self.assertLess(slowdown['multiple-shared'], worse)
        self.assertLess(
            slowdown['shared-separate'], slowdown['multiple-shared']
        )
        self.assertLess(slowdown['exported'], slowdown['shared-separate'])

    def test_shared_and_separate_lose_15_to_30_percent_on_8x2(self):
        slowdown = {n: cost.slowdown(n, 2, 16) for n in extra_specs.NETWORKS}
        self.assertGreaterEqual(slowdown['separate'], 1.15)
        self.assertLessEqual(slowdown['separate'], 1.30)
        # The model has shared just below: told of in
        # doc/source/admin/cost-model.rst, and not fitted away.
        self.assertAlmostEqual(1.144, slowdown['shared'], places=3)

    def test_missing_a_spare_cpu_costs_30_to_35_percent(self):
        # Told by a member's whole cost on a host with all of its CPUs
        # busy, one left, or part of one.
        for network in BRIDGED:
            for cpus in (4, 32):
                with_one, with_half, without = (
                    member_us(network, 2, 8, cost.load_of(busy, cpus))
                    for busy in (cpus - 1, cpus - 0.5, cpus)
                )
                self.assertGreaterEqual(without / with_one, 1.30)
                self.assertLessEqual(without / with_one, 1.35)
                self.assertAlmostEqual((with_one + without) / 2, with_half)

    def test_more_than_one_spare_cpu_gains_nothing(self):
        for network in BRIDGED:
            self.assertEqual(
                member_us(network, 2, 8, cost.load_of(3, 4)),
                member_us(network, 2, 8, cost.load_of(0, 4)),
            )

    def test_without_a_spare_cpu_every_message_costs_more(self):
        # Section 6.2, three against four pairs: Dom0 has no CPU left.
        for network in ('shared', 'separate', 'shared-separate'):
            self.assertGreater(
                remote_mb_s(network, 3) / 3, remote_mb_s(network, 4) / 4
            )
            self.assertAlmostEqual(
                member_us(network, 2, 8, cost.load_of(4, 4)),
                1.325 * member_us(network, 2, 8, cost.load_of(3, 4)),
            )

    def test_exported_needs_no_spare_cpu(self):
        # Section 7: "even in the absence of" one; the host is by-passed.
        self.assertAlmostEqual(
            member_us('exported', 2, 8, cost.load_of(4, 4)),
            member_us('exported', 2, 8, cost.load_of(3, 4)),
        )


class CoLocationTest(base.TestCase):
    """What follows for one host against two, everything else equal."""

    def halves(self, network, load=1.0):
        together = member_us(network, 8, 8, load)
        apart = member_us(network, 4, 8, load)
        return together, apart

    def test_co_location_is_cheap_with_a_shared_bridge(self):
        for network in ('shared', 'shared-separate', 'multiple-shared'):
            together, apart = self.halves(network)
            self.assertLess(together, apart, network)

    def test_members_on_one_host_share_its_uplink(self):
        # Unless each has one of its own.
        for network in ('shared', 'separate', 'shared-separate'):
            alone, four = (
                cost.split_us(network, here, 16, 1.0)[1]
                / cost.remote_share(here, 16)
                for here in (1, 4)
            )
            if network == 'shared':
                self.assertGreater(four, 1.2 * alone)
            else:
                self.assertAlmostEqual(alone, four)

    def test_message_on_one_host_is_faster(self):
        for network in ('shared', 'shared-separate', 'multiple-shared'):
            self.assertLess(
                cost.local_latency_us(network, 1.0),
                cost.remote_latency_us(network, 1.0),
                network,
            )

    def test_co_location_is_expensive_through_the_physical_switch(self):
        # Table 5: 84 MB/s co-located against 102 in table 3.
        for network in ('separate', 'exported'):
            together, _ = self.halves(network, load=1.0)
            alone = member_us(network, 1, 8, 1.0)
            self.assertGreater(together, alone, network)


class NpcTest(base.TestCase):
    """NPC'09 sections 4.2 and 6: vCPUs over pCPUs."""

    def test_no_loss_up_to_one_vcpu_per_cpu(self):
        for paradigm in extra_specs.PARADIGMS:
            for ratio in (0.0, 0.25, 0.5, 1.0):
                self.assertEqual(1.0, cost.overcommit_factor(paradigm, ratio))

    def test_steep_loss_for_openmp_and_hybrid_beyond(self):
        for paradigm in ('openmp', 'hybrid'):
            self.assertGreater(cost.overcommit_factor(paradigm, 1.25), 4)

    def test_mpi_is_more_robust(self):
        for ratio in (1.1, 1.5, 2.0):
            for paradigm in ('openmp', 'hybrid'):
                self.assertGreater(
                    cost.overcommit_factor(paradigm, ratio) - 1,
                    3 * (cost.overcommit_factor('mpi', ratio) - 1),
                )

    def test_lu_at_six_vcpus_on_four_cpus(self):
        # "more than 1.5 speedup with MPI ... less than 0.5 with OpenMP",
        # of four.
        self.assertGreaterEqual(4 / cost.overcommit_factor('mpi', 1.5), 1.5)
        self.assertLessEqual(4 / cost.overcommit_factor('openmp', 1.5), 0.5)


class ScalingTest(base.TestCase):
    def test_remote_bandwidth_follows_the_link(self):
        for network in extra_specs.NETWORKS:
            self.assertAlmostEqual(
                10 * cost.remote_mb_s(network, 2, 2, 1000),
                cost.remote_mb_s(network, 2, 2, 10000),
            )

    def test_the_order_of_configurations_is_the_same_at_any_speed(self):
        for here, members, load in ((1, 8, 1), (4, 8, 4), (8, 8, 4)):
            orders = {
                tuple(
                    sorted(
                        extra_specs.NETWORKS,
                        key=lambda n: (
                            cost.local_mb_s(n, load, speed)
                            if here == members
                            else cost.remote_mb_s(n, here, load, speed)
                        ),
                    )
                )
                for speed in (1000, 10000, 25000, 100000)
            }
            self.assertEqual(1, len(orders))

    def test_a_slow_link_does_not_slow_a_software_bridge(self):
        self.assertEqual(
            cost.local_mb_s('shared', 2, 1000),
            cost.local_mb_s('shared', 2, 100),
        )
        self.assertLess(
            cost.local_mb_s('separate', 2, 100),
            cost.local_mb_s('separate', 2, 1000),
        )

    def test_unknown_link_counts_as_that_of_the_papers(self):
        self.assertEqual(
            cost.remote_mb_s('shared', 1, 1, 1000),
            cost.remote_mb_s('shared', 1, 1, 0),
        )

    @given(
        st.sampled_from(extra_specs.NETWORKS),
        st.integers(1, 64),
        st.integers(1, 64),
        st.floats(0, 100),
        st.sampled_from([0, 100, 1000, 400000]),
    )
    def test_a_cost_is_positive_and_remote_traffic_never_helps_tiers(
        self, network, here, others, busy, speed
    ):
        load = cost.load_of(busy, 64)
        self.assertGreaterEqual(load, 1.0)
        self.assertLessEqual(load, 4.0)
        near, far = (
            member_us(
                network,
                here,
                here + others,
                load,
                link_mbps=speed,
                tier_factor=tier,
            )
            for tier in (1.0, 2.0)
        )
        self.assertGreater(near, 0)
        self.assertGreater(far, near)

    def test_member_without_peers_costs_nothing(self):
        for network in (None, *extra_specs.NETWORKS):
            self.assertEqual(0.0, member_us(network, 1, 1, 4.0))

    def test_load_is_4_on_a_full_host_and_1_with_a_spare_cpu(self):
        for busy, total in ((0, 0), (4, 4), (9, 4), (64, 64)):
            self.assertEqual(4.0, cost.load_of(busy, total))
        for busy, total in ((3, 4), (0, 4), (63, 64)):
            self.assertEqual(1.0, cost.load_of(busy, total))


class SharingTest(base.TestCase):
    """What co-located members share, and which traffic leaves the host."""

    def test_two_shared_uplinks_are_shared_by_half_as_many_each(self):
        for guests in (4, 6, 8):
            self.assertAlmostEqual(
                cost.remote_mb_s('shared', guests / 2, 1.0),
                cost.remote_mb_s('multiple-shared', guests, 1.0),
            )

    def test_member_that_talks_alone_fills_both_shared_uplinks(self):
        two = dataclasses.replace(
            cost_table.PAPER,
            two_interfaces={'multiple-shared': 2.0, 'shared-separate': 2.0},
        )
        alone, shared, own = (
            cost.remote_mb_s(network, 1, 1.0, table=two)
            for network in ('multiple-shared', 'shared', 'shared-separate')
        )
        self.assertAlmostEqual(2.0, alone / shared)
        # Its own uplink is one, whatever the number of its interfaces.
        self.assertEqual(cost_table.REMOTE_MB_S['native'][0], own)

    def test_in_an_exchange_all_members_of_a_host_use_its_uplinks(self):
        exchange, nominal = (
            time('shared') / time('separate')
            for time in (
                lambda network: cost.exchange_time(network, 4, 8, 1.0),
                lambda network: member_us(network, 4, 8, 1.0),
            )
        )
        self.assertGreater(exchange, 1.5)
        self.assertGreater(exchange, nominal)

    def test_traffic_to_other_hosts_falls_with_the_square_root(self):
        self.assertEqual(1.0, cost.remote_share(1, 8))
        self.assertAlmostEqual(4 / 7 / 2, cost.remote_share(4, 8))
        self.assertAlmostEqual(4 / 7, cost.remote_share(4, 8, locality=0.0))

    def test_only_members_that_talk_to_other_hosts_share_an_uplink(self):
        share = cost.remote_share(16, 32)
        _, remote_us = cost.split_us('shared', 16, 32, 1.0)
        self.assertAlmostEqual(
            share * cost.remote_us('shared', 16 * share, 1.0), remote_us
        )
