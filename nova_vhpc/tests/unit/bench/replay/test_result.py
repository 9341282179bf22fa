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

"""What is counted is what plans do with each VM, not the phase."""

from nova_vhpc.bench.replay import result as replay_result
from nova_vhpc.control import model
from nova_vhpc.tests import base

POOLS = model.Pools(io=frozenset({2, 3}), computing=frozenset({0, 1}))
LENT = model.Pools(POOLS.io, POOLS.computing, lent=True)

INSIDE = (frozenset({2}), frozenset({2, 3}))
OUTSIDE = (frozenset({0}), frozenset({1}))
BOTH = (frozenset({1}), frozenset({2}))


def plan(a, b=OUTSIDE, io=True, pools=POOLS, ignored=()):
    """A plan that pins the VMs ``a`` and ``b`` so."""
    phase = model.Phase.IO if io else model.Phase.COMPUTING
    return model.Plan(
        vms={
            name: model.VmPlan(
                name, model.CpuTune(vcpu_pins=pins), None, None, phase
            )
            for name, pins in (('a', a), ('b', b))
        },
        clusters={'c': model.ClusterPlan(phase)},
        ignored=tuple(model.Diagnostic(*one) for one in ignored),
        pools=pools,
    )


def summarise(*plans):
    """Of a trace that is one period longer; the last plan does not count."""
    plans = (*plans, plan(INSIDE, INSIDE))
    events = {name: (0.0,) * len(plans) for name in ('a', 'b')}
    return replay_result.summarise('ours', 'c', events, plans, 0)


class ReplayResultTest(base.TestCase):
    def test_members_may_be_in_different_pools(self):
        result = summarise(plan(INSIDE), plan(INSIDE), plan(OUTSIDE, INSIDE))
        self.assertEqual(
            (False, True, True, False), result.vms['a'].in_io_pool
        )
        self.assertEqual(
            (False, False, False, True), result.vms['b'].in_io_pool
        )
        self.assertEqual([2, 1], [vm.moves for vm in result.vms.values()])
        self.assertEqual(0.5, result.vms['a'].io_fraction)
        self.assertEqual(0.375, result.io_fraction)
        self.assertEqual(0.75, result.io_phase_fraction)
        self.assertEqual(1, result.phase_changes)

    def test_who_moves_together_moves_once(self):
        result = summarise(
            plan(INSIDE, INSIDE), plan(OUTSIDE, INSIDE), plan(INSIDE)
        )
        self.assertEqual(
            (
                replay_result.Move(1, 'io', ('a', 'b')),
                replay_result.Move(2, 'computing', ('a',)),
                replay_result.Move(3, 'computing', ('b',)),
                replay_result.Move(3, 'io', ('a',)),
            ),
            result.moves,
        )

    def test_every_vcpu_must_be_in_the_pool(self):
        for one in (
            plan(BOTH),
            plan(None),
            plan(INSIDE, pools=None),
            plan(INSIDE, pools=LENT, io=False),
        ):
            result = summarise(one)
            self.assertEqual((), result.moves)
            self.assertEqual(0.0, result.io_fraction)

    def test_a_phase_that_is_not_followed_has_a_reason(self):
        result = summarise(
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
                replay_result.NO_REASON: 1,
            },
            result.not_followed,
        )
        figures = result.as_json()['not_followed']
        self.assertEqual(6, figures['vm_periods'])
        self.assertEqual(6 / 14, figures['fraction'])

    def test_a_phase_that_is_followed(self):
        result = summarise(plan(INSIDE, INSIDE), plan(OUTSIDE, io=False))
        self.assertEqual({}, result.not_followed)
        self.assertEqual(('computing', 'io', 'computing'), result.phases)
        self.assertEqual(2, result.phase_changes)
