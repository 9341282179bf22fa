# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Whether programs sleep while they wait, and what is said of those."""

import dataclasses

import hypothesis
from hypothesis import strategies

from nova_vhpc.control import model
from nova_vhpc.control.gang import waiting
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.control.gang.policy_case import (
    TICK_US,
    V1,
    GangTestCase,
    busy,
    hog,
    vm,
)

SLEEPS = busy(part=0.4)
HALF_SLEEPS = model.Sample(
    vcpu_run_us=(5e4, 5e4, 1e3, 1e3),
    vcpu_wait_us=(5e4, 5e4, 0.0, 0.0),
    elapsed_us=TICK_US,
)
WAITS, SPINS, HELD_UP = model.WaitState


class TestStates(GangTestCase):
    """Each state that a member can be in, and what is said there."""

    def said(self, *vms, uuid='a', **changes):
        """Return state, reason and sentence of a VM."""
        decision = self.decide(*vms, **changes)
        part = decision.windows.part_of(uuid) if decision.windows else 0.0
        judged = decision.waiting.get(uuid)
        found = decision.vms.get(uuid)
        return (
            judged and judged.state,
            found and found.reason,
            judged and ': '.join(waiting.describe(judged, part)),
        )

    def test_spinning_member_that_is_held_up_is_to_wait(self):
        alone = 'never sleeps, runs together at most 50% of the time: let it '
        for reason, sentence, changes in (
            (
                'gang window',
                'never sleeps, runs together 50% of the time, in gang '
                'windows: let it wait, see ',
                {},
            ),
            ('first watched', alone, {'ticks': 20}),
            (
                'Linux 5.15',
                alone,
                {'limits': dataclasses.replace(V1, can_idle=False)},
            ),
        ):
            with self.subTest(reason):
                state, why, text = self.said(vm('a'), vm('b'), **changes)
                self.assertIs(HELD_UP, state)
                self.assertIn(reason, why)
                self.assertTrue(text.startswith(sentence), text)

    def test_windows_that_are_refused_are_not_spoken_of(self):
        servers = [hog(str(number), part=0.6) for number in range(2)]
        state, why, text = self.said(
            vm('a'), others=(hog('h'), *servers), cpus=2
        )
        self.assertIs(HELD_UP, state)
        self.assertIn('no windows: they would delay', why)
        self.assertNotIn('windows', text)

    def test_spinning_member_without_neighbours_needs_nothing(self):
        for vms in ((vm('a'),), (vm('a'), vm('b'))):
            state, why, text = self.said(*vms, cpus=4)
            self.assertIs(SPINS, state)
            self.assertIn('needs no windows', why)
            self.assertEqual(
                'never sleeps: waiting would gain it nothing', text
            )

    def test_member_that_waits_needs_no_windows(self):
        state, why, text = self.said(vm('a', sample=SLEEPS), vm('b'), vm('c'))
        self.assertIs(WAITS, state)
        self.assertEqual('waits: needs no windows', why)
        self.assertEqual(why, text)

    def test_member_that_seldom_sleeps_is_not_said_to_need_no_windows(self):
        seldom = busy(part=0.9)
        state, why, text = self.said(
            vm('a', sample=seldom), vm('b', sample=seldom), vm('c')
        )
        self.assertIs(WAITS, state)
        self.assertEqual('gang window', why)
        self.assertEqual(
            'sleeps at times: it has gang windows all the same', text
        )

    def test_member_that_its_quota_may_stop_is_unknown(self):
        limited = model.CpuTune(100_000, 50_000, 1024)
        state, why, _ = self.said(
            vm('a', sample=SLEEPS, original=limited), vm('b'), vm('c')
        )
        self.assertIsNone(state)
        self.assertIn('or reach their quota', why)

    def test_vcpus_that_never_sleep_beside_idle_ones_are_counted(self):
        state, why, text = self.said(
            vm('a', vcpus=4, sample=HALF_SLEEPS), vm('b'), vm('c'), fair=False
        )
        self.assertIs(HELD_UP, state)
        self.assertIn('only some of its vCPUs never sleep', why)
        self.assertIn('2 of its 4 vCPUs never sleep, run together at', text)

    def test_member_beside_members_that_wait_is_to_do_as_they(self):
        for paradigm, idle, does in (
            (model.Paradigm.MPI, False, True),
            (model.Paradigm.MPI, True, False),
            (model.Paradigm.OPENMP, False, False),
        ):
            sample = busy(part=0.001) if idle else SLEEPS
            *_, text = self.said(
                vm('a', cluster='c', paradigm=paradigm),
                vm('s', cluster='c', paradigm=paradigm, sample=sample),
                vm('b'),
            )
            self.assertEqual(does, 'as other members of its' in text, text)

    def test_single_vcpu_waits_for_siblings_in_a_cluster_only(self):
        for cluster, expected in ((None, SPINS), ('c', HELD_UP)):
            state, *_ = self.said(
                *(vm(uuid, vcpus=1, cluster=cluster) for uuid in 'abcd')
            )
            self.assertIs(expected, state)

    def test_nothing_is_said_of_what_is_not_known(self):
        unmeasured = model.Sample(elapsed_us=TICK_US)
        for one in (
            vm('a', sample=unmeasured),
            vm('a', workload=model.Workload.GENERAL),
            vm('a', workload=model.Workload.LATENCY),
        ):
            self.assertIsNone(self.said(one, vm('b'))[0])


parts = strategies.floats(0.0, 1.0)
loads = strategies.lists(
    strategies.tuples(parts, parts).map(
        lambda one: waiting.VcpuLoad(one[0], (1 - one[0]) * one[1])
    ),
    min_size=1,
    max_size=6,
)
before = strategies.sampled_from((None, *model.WaitState))


class TestJudge(base.TestCase):
    @hypothesis.given(loads, strategies.booleans(), before)
    def test_judgement_holds_for_all_loads(self, vcpus, has_peers, state):
        one = waiting.judge(vcpus, has_peers, state)
        self.assertEqual(one.busy_vcpus == 0, one.state is WAITS)
        self.assertEqual(
            one, waiting.judge(vcpus[::-1], has_peers, state), 'order'
        )
        held_up = [vcpu for vcpu in vcpus if vcpu.wait_part >= waiting.HELD_UP]
        if one.state is HELD_UP and state is not HELD_UP:
            self.assertTrue(held_up)
        if one.state is not WAITS:
            self.assertIn(one.run_part, [vcpu.run_part for vcpu in vcpus])

    @hypothesis.given(loads, strategies.booleans(), before)
    def test_same_loads_do_not_change_a_judgement_for_ever(
        self, vcpus, has_peers, state
    ):
        once = waiting.judge(vcpus, has_peers, state)
        twice = waiting.judge(vcpus, has_peers, once.state)
        self.assertEqual(twice, waiting.judge(vcpus, has_peers, twice.state))

    @hypothesis.given(loads, strategies.booleans(), before)
    def test_vcpus_that_are_not_held_up_are_left_alone(
        self, vcpus, has_peers, state
    ):
        served = [one._replace(wait_part=0.0) for one in vcpus]
        one = waiting.judge(served, has_peers, state)
        self.assertIsNot(HELD_UP, one.state)
        self.assertNotIn('let it', waiting.describe(one, 0.0)[1])

    @hypothesis.given(loads, before, parts)
    def test_windows_are_named_only_where_they_are_played(
        self, vcpus, state, windows_part
    ):
        one = waiting.judge(vcpus, True, state)
        finding, _ = waiting.describe(one, windows_part)
        self.assertEqual(
            one.state is HELD_UP and windows_part > 0,
            'in gang windows' in finding,
        )
