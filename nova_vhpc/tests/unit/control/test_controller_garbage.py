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

"""Plans are safe by construction, whatever comes in."""

import dataclasses
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from nova_vhpc.control import model
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.control import test_controller as helpers

GARBAGE_NUMBERS = st.one_of(
    st.none(),
    st.floats(),
    st.integers(-(10**18), 10**18).map(float),
)
TUNES = st.builds(
    model.CpuTune,
    period_us=st.one_of(st.none(), st.integers(-5, 2_000_000)),
    quota_us=st.one_of(st.none(), st.integers(-5, 2_000_000)),
    shares=st.one_of(st.none(), st.integers(-5, 300_000)),
    vcpu_pins=st.one_of(
        st.none(),
        st.lists(
            st.frozensets(st.integers(-1, 6), max_size=3), max_size=3
        ).map(tuple),
    ),
)
VMS = st.builds(
    model.VmView,
    uuid=st.sampled_from(['', 'a', 'b', 'c', 'd']),
    vcpus=st.integers(-2, 9),
    workload=st.sampled_from(model.Workload),
    paradigm=st.sampled_from(model.Paradigm),
    io_pool=st.sampled_from(model.IoPoolUse),
    time_slice_us=st.one_of(st.none(), st.integers(-5, 2_000_000)),
    cluster=st.sampled_from([None, '', 'x', 'y']),
    repin=st.booleans(),
    allowed_cpus=st.one_of(
        st.none(), st.frozensets(st.integers(-1, 6), max_size=4)
    ),
    original=TUNES,
    in_force=TUNES,
    sample=st.builds(
        model.Sample,
        sync_latency_us=GARBAGE_NUMBERS,
        io_events=GARBAGE_NUMBERS,
        vcpu_run_us=st.one_of(
            st.none(), st.lists(st.floats(), max_size=3).map(tuple)
        ),
        elapsed_us=GARBAGE_NUMBERS,
    ),
)
VIEWS = st.builds(
    model.HostView,
    tick=st.integers(-5, 10**9),
    now_us=st.integers(-(10**15), 10**15),
    period_us=st.integers(-5, 10**7),
    wall_us=st.integers(-(10**15), 10**15),
    cpus=st.lists(
        st.builds(
            model.Cpu,
            id=st.integers(-1, 6),
            socket=st.integers(-1, 2),
            llc=st.integers(-1, 2),
            core=st.integers(-1, 2),
        ),
        max_size=6,
    ).map(tuple),
    vms=st.lists(VMS, max_size=5).map(tuple),
    limits=st.builds(
        model.ActuatorLimits,
        effective_min_slice_us=st.sampled_from([0, 1_000, 4_000, 10**9]),
        min_period_us=st.sampled_from([-5, 0, 1_000, 20_000, 10**9]),
        max_period_us=st.sampled_from([0, 20_000, 1_000_000, 10**9]),
        min_quota_us=st.sampled_from([-5, 0, 1_000, 20_000]),
        max_quota_us=st.sampled_from([0, 20_000, 17_592_186_044_415, 10**18]),
        min_shares=st.sampled_from([-5, 2, 50_000]),
        max_shares=st.sampled_from([0, 10_000, 10**9]),
    ),
    peers=st.dictionaries(
        st.sampled_from(['x', 'y', 'z']),
        st.builds(
            model.PeerView,
            io=st.booleans(),
            min_slice_us=st.one_of(st.none(), st.integers(-5, 50_000)),
        ),
        max_size=2,
    ),
)


class GarbageTest(base.TestCase):
    """Nothing raises, and nothing unsafe comes out."""

    def check(self, seen, plan):
        shown = {}
        for one in seen.vms:
            shown.setdefault(one.uuid, []).append(one)
        limits = seen.limits
        host = {cpu.id for cpu in seen.cpus}
        self.assertLessEqual(set(plan.vms), set(shown))
        for uuid, planned in plan.vms.items():
            source = next(
                one for one in shown[uuid] if 1 <= one.vcpus <= 4_096
            )
            tune, original = planned.tune, source.original
            self.assertEqual(tune.period_us is None, tune.quota_us is None)
            if tune.period_us is not None:
                self.assertTrue(1_000 <= tune.period_us <= 1_000_000)
                self.assertTrue(
                    tune.quota_us == -1
                    or 1_000 <= tune.quota_us <= 17_592_186_044_415
                )
                self.assertGreaterEqual(tune.period_us, limits.min_period_us)
                self.assertLessEqual(tune.period_us, limits.max_period_us)
                if tune.quota_us != -1:
                    self.assertGreaterEqual(tune.quota_us, limits.min_quota_us)
                    self.assertLessEqual(tune.quota_us, limits.max_quota_us)
                if original.share is None:
                    self.assertIn(tune.quota_us, (-1, tune.period_us))
                else:
                    self.assertLessEqual(
                        abs(tune.share - original.share),
                        original.share / 100,
                    )
            if planned.slice_us is not None:
                self.assertGreaterEqual(
                    planned.slice_us, limits.effective_min_slice_us
                )
            pins = tune.vcpu_pins
            if pins is not None and pins != original.vcpu_pins:
                self.assertEqual(source.vcpus, len(pins))
                allowed = host
                if source.allowed_cpus is not None:
                    allowed = host & source.allowed_cpus
                for pin in pins:
                    self.assertTrue(pin and pin <= allowed)
                if plan.pools is not None and not plan.pools.lent:
                    pool = (
                        plan.pools.io
                        if planned.phase == model.Phase.IO
                        else plan.pools.computing
                    )
                    for pin in pins:
                        self.assertTrue(pin <= pool or not pool & allowed)
            if not source.repin:
                self.assertIsNone(pins)
            self.check_writes(planned, source)
        for uuid in shown.keys() - plan.vms.keys():
            self.assertIn(uuid, {one.uuid for one in plan.ignored})

    def check_writes(self, planned, source):
        """Writes lead to the tune, and hold nothing that is so already."""
        if planned.writes is None:
            return
        after = source.in_force
        for field in dataclasses.fields(model.CpuTune):
            value = getattr(planned.writes, field.name)
            if value is not None:
                self.assertEqual(getattr(planned.tune, field.name), value)
                after = dataclasses.replace(after, **{field.name: value})
        self.assertNotEqual(source.in_force, after)

    @settings(max_examples=100)
    @given(
        st.sampled_from(helpers.SLICES),
        st.sampled_from(helpers.PINNINGS),
        st.booleans(),
        st.lists(VIEWS, min_size=1, max_size=6),
    )
    def test_never_raises_and_stays_safe(self, slices, pinning, share, views):
        subject = helpers.make(slices, pinning, share_slices=share)
        twin = helpers.make(slices, pinning, share_slices=share)
        for one in views:
            plan = subject.decide(one)
            self.check(one, plan)
            # Compared as text: a NaN that is named equals no other.
            self.assertEqual(repr(plan), repr(twin.decide(one)))
            for remark in plan.ignored:
                self.assertNotIn('policy failed', remark.reason)

    @settings(max_examples=60)
    @given(
        st.sampled_from(helpers.SLICES),
        st.sampled_from(helpers.PINNINGS),
        VIEWS,
    )
    def test_a_plan_in_force_yields_no_writes(self, slices, pinning, seen):
        # Slices and phases may move on by themselves, pins may not.
        subject = helpers.make(slices, pinning)
        plan = subject.decide(seen)
        first = {}
        for one in seen.vms:
            first.setdefault(one.uuid, one)
        done = dataclasses.replace(
            seen,
            vms=tuple(
                helpers.apply(one, plan)
                for one in first.values()
                if one.uuid in plan.vms
            ),
        )
        again = helpers.make(slices, pinning).decide(done)
        for uuid, planned in again.vms.items():
            if planned.writes is not None:
                self.assertNotEqual(
                    planned.tune, plan.vms[uuid].tune, (uuid, planned)
                )

    def test_what_was_ignored_is_named(self):
        plan = helpers.make().decide(
            helpers.view(
                helpers.vm('a', sample=model.Sample(io_events=math.nan)),
                helpers.vm('b', vcpus=0),
                helpers.vm('a'),
                cpus=(*helpers.CPUS, model.Cpu(-3), model.Cpu(0)),
            )
        )
        self.assertEqual(
            [
                ('a', 'io_events = nan'),
                ('b', 'has 0 vCPUs'),
                ('a', 'shown twice; the first one counts'),
                ('', 'host CPU -3'),
                ('', 'host CPU 0 shown twice'),
            ],
            [(one.uuid, one.reason) for one in plan.ignored],
        )

    def test_no_cpus_at_all(self):
        for pinning in helpers.PINNINGS:
            plan = helpers.make(pinning=pinning).decide(
                helpers.view(helpers.vm(), cpus=())
            )
            self.assertIsNone(plan.vms['a'].writes)

    def test_ten_thousand_vms_that_vanish(self):
        subject = helpers.make()
        vms = [
            helpers.vm(f'vm{n}', cluster=f'c{n // 8}') for n in range(10_000)
        ]
        self.assertEqual(10_000, len(subject.decide(helpers.view(*vms)).vms))
        subject.decide(helpers.view(helpers.vm('a'), tick=2))
        for kept in (
            subject._planner._known,
            subject._checked,
            subject._phases._watches,
            subject._pinning_policy._spreader._places,
        ):
            self.assertLessEqual(len(kept), 1)

    def test_a_clock_that_jumps_changes_nothing(self):
        straight, jumping = helpers.make(), helpers.make()
        for tick in range(80):
            one = helpers.vm(
                sample=model.Sample(500.0 + tick, tick % 9 * 100.0)
            )
            usual = helpers.view(one, tick=tick)
            odd = dataclasses.replace(
                usual, now_us=(-1) ** tick * 10**15, wall_us=-tick
            )
            self.assertEqual(straight.decide(usual), jumping.decide(odd))
