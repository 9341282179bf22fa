# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Plan of one VM while the wanted slice and pins stay the same."""

import dataclasses

from nova_vhpc.control import model, vm_plan
from nova_vhpc.control.phases import tracker
from nova_vhpc.control.slices import base as slices_base
from nova_vhpc.tests import base

PINS = (frozenset({0}), frozenset({1}))
ORIGINAL = model.CpuTune(100_000, 50_000, 1_024, (frozenset({0, 1}),) * 2)


class VmPlannerTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.planner = vm_plan.VmPlanner()
        self.diagnostics = []

    def plan(self, in_force, original=ORIGINAL, slice_us=5_000):
        return self.planner.plan(
            model.VmView('a', 2, original=original, in_force=in_force),
            slices_base.VmSlice(slice_us, 'ATC'),
            PINS,
            False,
            model.ActuatorLimits(),
            tracker.VmPhase(model.Phase.COMPUTING),
            self.diagnostics,
        )

    def test_only_externally_changed_fields_are_written_again(self):
        wanted = model.CpuTune(10_000, 5_000, 1_024, PINS)
        self.assertEqual(
            model.CpuTune(10_000, 5_000, None, PINS),
            self.plan(ORIGINAL).writes,
        )
        self.assertIsNone(self.plan(wanted).writes)
        for change in (
            {'shares': 7},
            {'vcpu_pins': (frozenset({3}),) * 2},
            {'period_us': 100_000, 'quota_us': 50_000},
        ):
            back = {name: getattr(wanted, name) for name in change}
            self.assertEqual(
                model.CpuTune(**back),
                self.plan(dataclasses.replace(wanted, **change)).writes,
            )
            self.assertIsNone(self.plan(wanted).writes)

    def test_unknown_quota_is_named_in_each_tick(self):
        unknown = dataclasses.replace(ORIGINAL, quota_us=None)
        for _ in range(3):
            self.diagnostics.clear()
            plan = self.plan(unknown, original=unknown)
            self.assertIsNone(plan.slice_us)
            self.assertEqual(
                [model.Diagnostic('a', vm_plan.UNKNOWN_QUOTA)],
                self.diagnostics,
            )

    def test_plan_is_kept_until_its_vm_is_gone(self):
        plan = self.plan(ORIGINAL)
        self.assertIs(plan, self.plan(ORIGINAL))
        self.planner.forget_all_but({'a'})
        self.assertIs(plan, self.plan(ORIGINAL))
        self.planner.forget_all_but({'b'})
        self.assertIsNot(plan, self.plan(ORIGINAL))


class SliceWithoutEffectTest(base.TestCase):
    """A slice policy chose a slice that changes nothing for the VM."""

    def problem(self, period_us, quota_us, slice_us=5_000, **changes):
        pins = changes.pop('pins', (frozenset({0, 1}),) * 2)
        choice = slices_base.VmSlice(
            slice_us,
            'ATC',
            specified=changes.pop('specified', False),
            optional=changes.pop('optional', False),
        )
        limits = model.ActuatorLimits(
            thread_slices=changes.pop('thread_slices', False)
        )
        original = model.CpuTune(period_us, quota_us, 1_024, pins)
        repin = changes.pop('repin', True)
        return vm_plan.work_out(
            choice, None, False, repin, original, limits
        ).problem

    def test_flavor_without_quota_is_named(self):
        for specified in (False, True):
            self.assertEqual(
                vm_plan.NO_QUOTA,
                self.problem(100_000, model.UNLIMITED, specified=specified),
            )

    def test_slices_of_threads_need_no_quota(self):
        self.assertIsNone(
            self.problem(100_000, model.UNLIMITED, thread_slices=True)
        )

    def test_slice_longer_than_the_quota_is_named(self):
        self.assertIsNone(self.problem(100_000, 50_000))
        self.assertEqual(
            vm_plan.NOT_SHORTER, self.problem(100_000, 50_000, 60_000)
        )
        self.assertIsNone(self.problem(100_000, 50_000, None))

    def test_host_cpus_of_its_own_are_named(self):
        pins = (frozenset({0}), frozenset({1}))
        self.assertEqual(
            vm_plan.OWN_CPUS,
            self.problem(100_000, model.UNLIMITED, pins=pins, repin=False),
        )

    def test_nothing_is_said_of_the_slice_of_the_io_pool(self):
        self.assertIsNone(
            self.problem(100_000, model.UNLIMITED, optional=True)
        )
