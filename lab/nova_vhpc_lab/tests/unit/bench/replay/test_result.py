# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Moves are counted by the pins in the plans, not by the phase."""

from nova_vhpc.control import model
from nova_vhpc.tests import base
from nova_vhpc_lab.bench.replay import result

POOLS = model.Pools(io=frozenset({2, 3}), computing=frozenset({0, 1}))
LENT = model.Pools(POOLS.io, POOLS.computing, lent=True)

INSIDE = (frozenset({2}), frozenset({2, 3}))
OUTSIDE = (frozenset({0}), frozenset({1}))
BOTH = (frozenset({1}), frozenset({2}))


def plan(a, b=OUTSIDE, io=True, pools=POOLS, ignored=()):
    """Return a plan with these pins for the VMs ``a`` and ``b``."""
    phase = model.Phase.IO if io else model.Phase.COMPUTING
    return model.Plan(
        vms={
            name: model.VmPlan(
                name, model.CpuTune(vcpu_pins=pins), None, None, phase
            )
            for name, pins in (('a', a), ('b', b))
        },
        clusters={'c': model.ClusterPlan(phase)},
        ignored=tuple(model.Diagnostic(*fields) for fields in ignored),
        pools=pools,
    )


def summarise(*plans):
    """Summarise a trace with one more period, whose plan does not count."""
    plans = (*plans, plan(INSIDE, INSIDE))
    events = {name: (0.0,) * len(plans) for name in ('a', 'b')}
    return result.summarise('ours', 'c', events, plans, 0)


class ReplayResultTest(base.TestCase):
    def test_members_in_different_pools_are_counted_one_by_one(self):
        replay = summarise(plan(INSIDE), plan(INSIDE), plan(OUTSIDE, INSIDE))
        self.assertEqual(
            (False, True, True, False), replay.vms['a'].in_io_pool
        )
        self.assertEqual(
            (False, False, False, True), replay.vms['b'].in_io_pool
        )
        self.assertEqual([2, 1], [vm.moves for vm in replay.vms.values()])
        self.assertEqual(0.5, replay.vms['a'].io_fraction)
        self.assertEqual(0.375, replay.io_fraction)
        self.assertEqual(0.75, replay.io_phase_fraction)
        self.assertEqual(1, replay.phase_changes)

    def test_vms_that_move_in_the_same_period_are_one_move(self):
        replay = summarise(
            plan(INSIDE, INSIDE), plan(OUTSIDE, INSIDE), plan(INSIDE)
        )
        self.assertEqual(
            (
                result.Move(1, 'io', ('a', 'b')),
                result.Move(2, 'computing', ('a',)),
                result.Move(3, 'computing', ('b',)),
                result.Move(3, 'io', ('a',)),
            ),
            replay.moves,
        )

    def test_vm_is_not_in_the_pool_unless_all_vcpus_are(self):
        for first_plan in (
            plan(BOTH),
            plan(None),
            plan(INSIDE, pools=None),
            plan(INSIDE, pools=LENT, io=False),
        ):
            replay = summarise(first_plan)
            self.assertEqual((), replay.moves)
            self.assertEqual(0.0, replay.io_fraction)

    def test_periods_of_a_phase_not_followed_are_counted_by_reason(self):
        replay = summarise(
            plan(
                OUTSIDE,
                INSIDE,
                ignored=[('a', 'no such sample'), ('a', 'too wide')],
            ),
            plan(OUTSIDE, INSIDE, ignored=[('b', 'odd'), ('a', 'too wide')]),
            plan(OUTSIDE, INSIDE, ignored=[('', 'pools are odd')]),
            plan(
                OUTSIDE,
                pools=None,
                ignored=[('a', 'no such sample'), ('', 'no pools')],
            ),
            plan(OUTSIDE, INSIDE),
            plan(OUTSIDE, io=False, ignored=[('a', 'too wide')]),
        )
        self.assertEqual(
            {
                'too wide': 2,
                'no pools': 2,
                'pools are odd': 1,
                result.NO_REASON: 1,
            },
            replay.not_followed,
        )
        figures = replay.as_json()['not_followed']
        self.assertEqual(6, figures['vm_periods'])
        self.assertEqual(6 / 14, figures['fraction'])

    def test_no_reason_is_counted_if_the_phase_is_followed(self):
        replay = summarise(plan(INSIDE, INSIDE), plan(OUTSIDE, io=False))
        self.assertEqual({}, replay.not_followed)
        self.assertEqual(('computing', 'io', 'computing'), replay.phases)
        self.assertEqual(2, replay.phase_changes)
