# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Plans are safe whatever the view contains."""

import dataclasses
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from nova_vhpc.control import model
from nova_vhpc.tests import long
from nova_vhpc.tests.unit.control import (
    builders,
    invalid_input,
    plan_checks,
)


class InvalidInputTest(plan_checks.PlanTestCase):
    """Nothing raises, and no plan is unsafe."""

    @settings(max_examples=long.long(50, 150))
    @given(
        st.sampled_from(builders.SLICES),
        st.sampled_from(builders.PINNINGS),
        st.booleans(),
        st.lists(invalid_input.VIEWS, min_size=1, max_size=6),
    )
    def test_no_view_raises_or_yields_an_unsafe_plan(
        self, slices, pinning, share, views
    ):
        subject = builders.make(slices, pinning, share_slices=share)
        twin = builders.make(slices, pinning, share_slices=share)
        for one in views:
            plan = subject.decide(one)
            self.check(one, plan)
            # Compared as text because NaN does not equal itself.
            self.assertEqual(repr(plan), repr(twin.decide(one)))

    @settings(max_examples=long.long(35, 100))
    @given(
        st.sampled_from(builders.SLICES),
        st.sampled_from(builders.PINNINGS),
        invalid_input.VIEWS,
    )
    def test_plan_in_force_yields_no_writes(self, slices, pinning, seen):
        subject = builders.make(slices, pinning)
        plan = subject.decide(seen)
        done = dataclasses.replace(
            seen, vms=tuple(builders.apply(one, plan) for one in seen.vms)
        )
        # Planned by the same agent, and by a restarted one.
        for again in (subject, builders.make(slices, pinning)):
            for uuid, planned in again.decide(done).vms.items():
                self.assertIsNone(planned.writes, uuid)

    def test_values_left_out_are_named(self):
        plan = builders.make().decide(
            builders.view(
                builders.vm('a', sample=model.Sample(io_events=math.nan)),
                builders.vm('b'),
                limits=model.ActuatorLimits(min_shares=0),
                peers={'x': None},
            )
        )
        self.assertEqual(
            [
                ('a', 'io_events is impossible'),
                ('', 'what peers say of cluster x'),
                ('', 'actuator limits wider than libvirt takes'),
            ],
            [(one.uuid, one.reason) for one in plan.ignored],
        )

    def test_host_without_cpus_writes_nothing(self):
        for pinning in builders.PINNINGS:
            plan = builders.make(pinning=pinning).decide(
                builders.view(builders.vm(), cpus=())
            )
            self.assertIsNone(plan.vms['a'].writes)

    def test_ten_thousand_vms_that_vanish_are_forgotten(self):
        subject = builders.make()
        vms = [
            builders.vm(f'vm{n}', cluster=f'c{n // 8}') for n in range(10_000)
        ]
        self.assertEqual(10_000, len(subject.decide(builders.view(*vms)).vms))
        subject.decide(builders.view(builders.vm('a'), tick=2))
        for kept in (
            subject._vm_planner._planned,
            subject._phases._tracked,
            subject._pinning_policy._spreader._places,
        ):
            self.assertLessEqual(len(kept), 1)
