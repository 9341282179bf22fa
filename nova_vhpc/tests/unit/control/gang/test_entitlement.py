# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""How many CPUs stock Linux would give each VM."""

import dataclasses

import hypothesis
from hypothesis import strategies

from nova_vhpc.control import fair_share, model
from nova_vhpc.control.gang import demand, entitlement
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.control.gang.policy_case import (
    TICK_US,
    hog,
    vm,
    weighing,
)


class TestFairCpus(base.TestCase):
    def fair(self, *vms, cpus=4, outside_cpus=0.0):
        """Return the CPUs that VMs are entitled to, after four seconds."""
        tracker = demand.DemandTracker()
        for _ in range(40):
            tracker.advance(vms)
        view = model.HostView(
            0,
            0,
            TICK_US,
            (),
            tuple(one for one in vms if isinstance(one, model.VmView)),
            others=tuple(one for one in vms if isinstance(one, model.OtherVm)),
            limits=model.ActuatorLimits(max_shares=262_144),
        )
        return entitlement.fair_cpus(
            vms,
            fair_share.own_weights(view),
            frozenset(range(cpus)),
            {one.uuid: tracker.cpus(one.uuid) for one in vms},
            outside_cpus,
        )

    def assert_fair(self, expected, *vms, cpus=4):
        found = self.fair(*vms, cpus=cpus)
        self.assertEqual(expected.keys(), found.keys())
        for uuid, part in expected.items():
            self.assertAlmostEqual(part, found[uuid], places=2, msg=uuid)

    def test_vms_of_equal_weight_get_equal_parts(self):
        self.assert_fair({'a': 1, 'b': 1}, vm('a'), hog('b'), cpus=2)

    def test_three_equal_vms_of_four_vcpus_get_a_third_each(self):
        self.assert_fair(
            dict.fromkeys('abc', 8 / 3),
            *(vm(uuid, vcpus=4) for uuid in 'abc'),
            cpus=8,
        )

    def test_opted_in_or_not_makes_no_difference(self):
        found = self.fair(vm('a', vcpus=8), hog('b', vcpus=8), cpus=8)
        self.assertEqual(found['a'], found['b'])

    def test_heavier_vm_gets_more_up_to_its_vcpus(self):
        heavy = vm('a', original=weighing(3_072))
        self.assert_fair({'a': 1.5, 'b': 0.5}, heavy, hog('b'), cpus=2)
        self.assert_fair({'a': 2, 'b': 1}, heavy, hog('b'), cpus=3)

    def test_vm_that_sleeps_gets_what_it_uses(self):
        # Its two vCPUs run for 15% of the time each.
        self.assert_fair(
            {'a': 1.7, 's': 0.3}, vm('a'), hog('s', part=0.3), cpus=2
        )

    def test_quota_limits_what_a_vm_is_entitled_to(self):
        limited = vm('a', original=model.CpuTune(100_000, 25_000, 1_024))
        self.assert_fair({'a': 0.5, 'b': 1.5}, limited, hog('b'), cpus=2)
        limited = dataclasses.replace(hog('o'), share=0.25)
        self.assert_fair({'o': 0.5, 'b': 1.5}, limited, hog('b'), cpus=2)

    def test_pins_bound_where_a_vm_competes(self):
        wide = hog('w', vcpus=4)
        bound = dataclasses.replace(hog('o'), vcpu_pins=(frozenset({0}),) * 2)
        self.assert_fair({'o': 1, 'w': 3}, bound, wide)
        # Eight such VMs on two CPUs cannot take the other two.
        crowd = [
            dataclasses.replace(
                hog(str(n)), vcpu_pins=(frozenset({0, 1}),) * 2
            )
            for n in range(8)
        ]
        self.assertAlmostEqual(2.0, self.fair(wide, *crowd)['w'], delta=0.3)

    def test_pins_outside_of_the_host_cpus_are_left_out(self):
        away = (frozenset({8, 9}),) * 2
        bound = dataclasses.replace(hog('o'), vcpu_pins=away)
        self.assert_fair({'o': 1, 'b': 1}, bound, hog('b'), cpus=2)

    def test_vm_that_was_not_measured_is_entitled_to_nothing(self):
        unmeasured = vm('u', sample=model.Sample())
        self.assert_fair({'u': 0, 'b': 2}, unmeasured, hog('b'), cpus=2)

    def test_cpus_that_something_else_uses_are_lost_to_all_alike(self):
        found = self.fair(vm('a'), hog('b'), cpus=2, outside_cpus=0.5)
        self.assertEqual({'a': 0.75, 'b': 0.75}, found)

    def test_some_cpus_are_left_however_much_something_else_uses(self):
        found = self.fair(vm('a'), hog('b'), cpus=2, outside_cpus=3.0)
        self.assertAlmostEqual(0.1, found['a'])

    @hypothesis.given(
        strategies.lists(
            strategies.tuples(
                strategies.integers(1, 8), strategies.integers(2, 262_144)
            ),
            min_size=1,
            max_size=6,
        )
    )
    @hypothesis.settings(deadline=None, max_examples=30)
    def test_busy_vms_divide_all_cpus_that_they_can_use(self, vms):
        found = self.fair(
            *(
                hog(str(number), vcpus, shares)
                for number, (vcpus, shares) in enumerate(vms)
            ),
            cpus=8,
        )
        usable = min(8, sum(vcpus for vcpus, _ in vms))
        self.assertAlmostEqual(usable, sum(found.values()), places=6)
        for number, (vcpus, _) in enumerate(vms):
            self.assertLessEqual(found[str(number)], vcpus + 1e-9)
