# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Plans and writes of the controller; limits of what plugins can do."""

import dataclasses

from nova_vhpc.control import config as control_config
from nova_vhpc.control import controller, model
from nova_vhpc.control.pinning import balance, io_pool
from nova_vhpc.control.pinning import base as pinning_base
from nova_vhpc.control.slices import base as slices_base
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.control.builders import (
    ALL,
    CPUS,
    ORIGINAL,
    PINNINGS,
    LastValue,
    apply,
    make,
    view,
    vm,
)
from nova_vhpc_lab.rivals import fixed


class WritesTest(base.TestCase):
    def test_nothing_is_written_without_policies(self):
        subject = make(slices_base.NonePolicy, pinning_base.NonePolicy)
        self.assertIsNone(subject.decide(view(vm())).vms['a'].writes)

    def test_period_and_quota_are_written_together(self):
        subject = make(fixed.FixedPolicy, pinning_base.NonePolicy)
        one = vm(original=dataclasses.replace(ORIGINAL, quota_us=50_000))
        plan = subject.decide(view(one)).vms['a']
        self.assertEqual(model.CpuTune(20_000, 10_000), plan.writes)
        self.assertEqual(10_000, plan.slice_us)

    def test_external_change_is_written_over(self):
        subject = make(slices_base.NonePolicy, pinning_base.NonePolicy)
        one = vm(in_force=dataclasses.replace(ORIGINAL, quota_us=5_000))
        self.assertEqual(
            model.CpuTune(100_000, -1),
            subject.decide(view(one)).vms['a'].writes,
        )

    def test_original_pins_are_restored_if_vm_is_no_longer_pinned(self):
        subject = make(slices_base.NonePolicy, balance.BalancePolicy)
        one = apply(vm(), subject.decide(view(vm())))
        self.assertNotEqual(ORIGINAL.vcpu_pins, one.in_force.vcpu_pins)
        general = dataclasses.replace(one, workload=model.Workload.GENERAL)
        plan = subject.decide(view(general, tick=2))
        self.assertEqual(ORIGINAL.vcpu_pins, plan.vms['a'].writes.vcpu_pins)

    def test_slice_is_not_written_to_vm_on_cpus_of_its_own(self):
        own = dataclasses.replace(
            ORIGINAL, vcpu_pins=(frozenset({0}), frozenset({1}))
        )
        half = dataclasses.replace(own, quota_us=50_000)
        wide = dataclasses.replace(own, vcpu_pins=(frozenset({0}), ALL))
        unknown = dataclasses.replace(own, vcpu_pins=None)
        for changes, written in (
            ({}, False),
            # Not each vCPU has a CPU of its own, or that is unknown.
            ({'original': wide, 'in_force': wide}, True),
            ({'original': unknown, 'in_force': unknown}, True),
            # A shorter period holds a vCPU up for less long at a time.
            ({'original': half, 'in_force': half}, True),
            # The administrator set this slice.
            ({'time_slice_us': 5_000}, True),
            # The pinning policy may change the pins.
            ({'repin': True}, True),
            ({'original': ORIGINAL, 'in_force': ORIGINAL}, True),
        ):
            about = {'original': own, 'in_force': own, 'repin': False}
            subject = make(fixed.FixedPolicy, pinning_base.NonePolicy)
            plan = subject.decide(view(vm(**about | changes))).vms['a']
            self.assertEqual(written, plan.writes is not None, changes)
            self.assertEqual(written, plan.slice_us is not None, changes)

    def test_dedicated_guest_is_never_repinned(self):
        odd = dataclasses.replace(
            ORIGINAL, vcpu_pins=(frozenset((0,)), frozenset((1,)))
        )
        for pinning in PINNINGS:
            subject = make(slices_base.NonePolicy, pinning)
            plan = subject.decide(view(vm(repin=False, in_force=odd)))
            self.assertIsNone(plan.vms['a'].tune.vcpu_pins)
            self.assertIsNone(plan.vms['a'].writes)

    def test_no_slice_is_written_if_original_quota_is_unknown(self):
        subject = make(fixed.FixedPolicy, pinning_base.NonePolicy)
        one = vm(original=model.CpuTune())
        for tick in range(3):
            plan = subject.decide(view(one, tick=tick))
            self.assertIsNone(plan.vms['a'].writes)
            self.assertIsNone(plan.vms['a'].slice_us)
            (diagnostic,) = plan.ignored
            self.assertEqual('a', diagnostic.uuid)
            self.assertIn('quota unknown', diagnostic.reason)

    def test_vm_with_a_tiny_share_keeps_its_period_and_is_pinned(self):
        tiny = dataclasses.replace(
            ORIGINAL, period_us=1_000_000, quota_us=1_000
        )
        plan = make(fixed.FixedPolicy, balance.BalancePolicy).decide(
            view(vm(original=tiny))
        )
        self.assertIsNone(plan.vms['a'].slice_us)
        self.assertIsNone(plan.vms['a'].writes.period_us)
        # It is pinned nevertheless.
        self.assertIsNotNone(plan.vms['a'].writes.vcpu_pins)

    def test_vm_with_a_tiny_share_gets_its_original_period_back(self):
        tiny = dataclasses.replace(
            ORIGINAL, period_us=1_000_000, quota_us=1_000
        )
        plan = make(fixed.FixedPolicy, pinning_base.NonePolicy).decide(
            view(vm(original=tiny, in_force=ORIGINAL))
        )
        self.assertEqual(model.CpuTune(1_000_000, 1_000), plan.vms['a'].writes)

    def test_original_shares_are_restored_if_within_actuator_limits(self):
        subject = make(slices_base.NonePolicy, pinning_base.NonePolicy)
        limits = model.ActuatorLimits(min_shares=2, max_shares=10_000)
        for shares, written in (
            (2, True),
            (10_000, True),
            (1, False),
            (10_001, False),
        ):
            one = vm(
                original=dataclasses.replace(ORIGINAL, shares=shares),
                in_force=ORIGINAL,
            )
            plan = subject.decide(view(one, limits=limits)).vms['a']
            self.assertEqual(
                model.CpuTune(shares=shares) if written else None, plan.writes
            )

    def test_predicted_events_follow_samples_if_nothing_else_changes(self):
        subject = make(slices_base.NonePolicy)
        observed = [
            subject.decide(
                view(vm(sample=model.Sample(io_events=events)), tick=tick)
            )
            .vms['a']
            .predicted_events
            for tick, events in enumerate((0.0, 125.0, 125.0, 0.0))
        ]
        self.assertEqual([0.0, 125.0, 125.0, 0.0], observed)

    def test_phase_follows_peers_if_nothing_else_changes(self):
        subject = make(slices_base.NonePolicy, pinning_base.NonePolicy)
        one = vm(cluster='c')
        observed = [
            subject.decide(view(one, peers={'c': model.PeerView(io=io)}))
            .vms['a']
            .phase
            for io in (False, True, True, False)
        ]
        io, computing = model.Phase.IO, model.Phase.COMPUTING
        self.assertEqual([computing, io, io, computing], observed)

    def test_reason_follows_slice_policy_if_nothing_else_changes(self):
        subject = make(Asking, pinning_base.NonePolicy)
        one = vm()
        observed = [
            subject.decide(view(one)).vms['a'].reason for _ in range(3)
        ]
        self.assertEqual(['call 1', 'call 2', 'call 3'], observed)


class IoPoolTest(base.TestCase):
    def test_vm_in_io_pool_has_the_slice_and_cpus_of_the_pool(self):
        subject = make(io_slice_us=1_000)
        one = vm(
            io_pool=model.IoPoolUse.ALWAYS,
            original=dataclasses.replace(ORIGINAL, quota_us=50_000),
        )
        plan = subject.decide(
            view(
                one, limits=model.ActuatorLimits(effective_min_slice_us=4_000)
            )
        )
        self.assertEqual(4_000, plan.vms['a'].slice_us)
        self.assertEqual(8_000, plan.vms['a'].tune.period_us)
        self.assertEqual(model.Phase.IO, plan.vms['a'].phase)
        self.assertLessEqual(
            frozenset().union(*plan.vms['a'].tune.vcpu_pins), plan.pools.io
        )

    def test_vm_with_io_pool_never_stays_out(self):
        subject = make(leave_rule='paper')
        one = vm(io_pool=model.IoPoolUse.NEVER)
        for tick in range(120):
            sample = model.Sample(io_events=tick % 2 * 900.0)
            plan = subject.decide(
                view(dataclasses.replace(one, sample=sample), tick=tick)
            )
            self.assertEqual(model.Phase.COMPUTING, plan.vms['a'].phase)

    def test_all_members_enter_io_phase_if_peers_are_in_it(self):
        plan = make().decide(
            view(
                vm('a', cluster='c'),
                vm('b', cluster='c'),
                vm('d'),
                peers={'c': model.PeerView(io=True)},
            )
        )
        self.assertEqual(
            {'a': 'io', 'b': 'io', 'd': 'computing'},
            {uuid: str(one.phase) for uuid, one in plan.vms.items()},
        )
        self.assertEqual(
            {'c': model.ClusterPlan(model.Phase.COMPUTING)},
            dict(plan.clusters),
        )


class PredictionTest(base.TestCase):
    def test_predictors_are_made_only_for_policies_that_use_phases(self):
        made = []

        def predictor():
            made.append(LastValue())
            return made[-1]

        config = control_config.ControlConfig()
        for pinning in PINNINGS:
            made.clear()
            subject = controller.Controller(
                config,
                slices_base.NonePolicy(config),
                pinning(config),
                predictor,
            )
            subject.decide(view(vm(sample=model.Sample(io_events=5.0))))
            self.assertEqual(pinning is io_pool.IoPoolPolicy, bool(made))
            self.assertEqual(subject.predicts, bool(made))


class Faulty:
    """A plugin that always fails."""

    uses_phases = True

    def __init__(self, config):
        pass

    def decide(self, context):
        raise RuntimeError('no idea')

    pin = decide


class Asking:
    """A slice plugin with requests to the pinning policy."""

    requests = {
        'clear_cpus': frozenset((3,)),
        'loose': frozenset(('a',)),
        'idle': frozenset(('b',)),
    }

    def __init__(self, config):
        self.calls = 0

    def decide(self, context):
        self.calls += 1
        reason = f'call {self.calls}'
        return slices_base.SliceDecision(
            vms={'a': slices_base.VmSlice(reason=reason)}, **self.requests
        )


class FixedPins:
    """A plugin that returns the same pins for any view."""

    uses_phases = False

    def __init__(self, config):
        self.pins = {'a': (frozenset((0,)), frozenset((1,)))}
        self.received = []

    def pin(self, context):
        self.received.append(
            {name: getattr(context, name) for name in Asking.requests}
        )
        return pinning_base.PinDecision(
            pins=self.pins, in_io_pool=frozenset(self.pins)
        )


class Unsafe:
    """A plugin whose every decision is unsafe or impossible."""

    uses_phases = False

    def __init__(self, config):
        pass

    def pin(self, context):
        return pinning_base.PinDecision(
            pins={
                'a': (frozenset((99,)),) * 2,
                'b': (frozenset((0,)),),
                'c': (frozenset((0,)), frozenset()),
                'stranger': (frozenset((0,)),),
            },
            in_io_pool=frozenset(('a', 'stranger')),
        )

    def decide(self, context):
        shares = {'stranger': 100}
        return slices_base.SliceDecision(
            vms={
                'a': slices_base.VmSlice(-5),
                'b': slices_base.VmSlice(10**12),
                'stranger': slices_base.VmSlice(5_000),
            },
            windows=model.WindowSchedule(
                (model.Turn(1_000, frozenset(), shares),), shares
            ),
        )


class ImpossibleOriginalTest(base.TestCase):
    def test_original_below_minimum_quota_is_never_written(self):
        odd = dataclasses.replace(ORIGINAL, quota_us=500)
        for slices in (fixed.FixedPolicy, slices_base.NonePolicy):
            plan = make(slices, pinning_base.NonePolicy).decide(
                view(vm(original=odd, in_force=ORIGINAL))
            )
            self.assertIsNone(plan.vms['a'].writes)


class PluginTest(base.TestCase):
    def test_originals_stay_if_policies_fail(self):
        plan = make(Faulty, Faulty).decide(view(vm()))
        self.assertIsNone(plan.vms['a'].writes)
        self.assertEqual(2, len(plan.ignored))
        self.assertIn('no idea', plan.ignored[0].reason)

    def test_pins_are_checked_again_if_the_vm_or_host_changes(self):
        subject = make(slices_base.NonePolicy, FixedPins)
        for current_view, valid in (
            (view(vm()), True),
            (view(vm()), True),
            (view(vm(allowed_cpus=frozenset((0, 2)))), False),
            (view(vm()), True),
            (view(vm(vcpus=3)), False),
            (view(vm()), True),
            (view(vm(), cpus=CPUS[1:]), False),
        ):
            plan = subject.decide(current_view)
            self.assertEqual(not valid, bool(plan.ignored))

    def test_pins_are_checked_again_if_they_change(self):
        config = control_config.ControlConfig()
        policy = FixedPins(config)
        subject = controller.Controller(
            config, slices_base.NonePolicy(config), policy, LastValue
        )
        self.assertEqual((), subject.decide(view(vm())).ignored)
        policy.pins = {'a': (frozenset((0,)), frozenset((9,)))}
        plan = subject.decide(view(vm(), tick=2))
        self.assertEqual('a', plan.ignored[0].uuid)
        self.assertEqual(ORIGINAL.vcpu_pins, plan.vms['a'].tune.vcpu_pins)

    def test_pinning_gets_requests_of_slice_policy_in_the_next_tick(self):
        config = control_config.ControlConfig()
        policy = FixedPins(config)
        subject = controller.Controller(
            config, Asking(config), policy, LastValue
        )
        for tick in range(2):
            subject.decide(view(vm(), vm('b'), tick=tick))
        self.assertEqual(Asking.requests, policy.received[1])
        self.assertFalse(any(policy.received[0].values()))

    def test_unsafe_pins_slices_and_windows_are_dropped(self):
        plan = make(Unsafe, Unsafe).decide(view(vm('a'), vm('b'), vm('c')))
        self.assertEqual({'a', 'b', 'c'}, set(plan.vms))
        self.assertIsNone(plan.windows)
        for one in plan.vms.values():
            self.assertEqual(ORIGINAL.vcpu_pins, one.tune.vcpu_pins)
            self.assertTrue(1_000 <= one.tune.period_us <= 1_000_000)
        reasons = ' '.join(one.reason for one in plan.ignored)
        self.assertIn('windows dropped', reasons)

    def test_vm_without_valid_pins_is_not_in_the_io_pool(self):
        # Otherwise its short slice would throttle it on CPUs of other VMs.
        for one, pinning in (
            (vm('a'), Unsafe),
            (vm('a', repin=False), Unsafe),
            (vm('a', repin=False), FixedPins),
        ):
            plan = make(fixed.FixedPolicy, pinning).decide(view(one))
            self.assertEqual('fixed', plan.vms['a'].reason)
            self.assertEqual(10_000, plan.vms['a'].slice_us)
            plan = make(Gang, pinning).decide(view(one))
            self.assertEqual({'a'}, set(plan.windows.shares_after))


class Gang:
    """Returns windows of all VMs that are not in the I/O pool."""

    def __init__(self, config):
        pass

    def decide(self, context):
        shares = {
            one.uuid: 100
            for one in context.view.vms
            if one.uuid not in context.in_io_pool
        }
        return slices_base.SliceDecision(
            vms={
                uuid: slices_base.VmSlice(50_000, 'gang', by_windows=True)
                for uuid in shares
            },
            windows=model.WindowSchedule(
                (model.Turn(50_000, frozenset(shares), shares),), shares
            ),
        )


class FixedWindows:
    """Returns the same windows for VMs a and b, whatever the view."""

    def __init__(self, config):
        self.show(50_000)

    def show(self, width_us):
        shares = {'a': 100, 'b': 100}
        self._decision = slices_base.SliceDecision(
            windows=model.WindowSchedule(
                (model.Turn(width_us, frozenset(shares), shares),), shares
            )
        )

    def decide(self, context):
        return self._decision


class WindowsTest(base.TestCase):
    def test_windows_are_checked_again_if_vms_or_limits_change(self):
        subject = make(FixedWindows, pinning_base.NonePolicy)
        both = (vm('a'), vm('b'))
        few = model.ActuatorLimits(max_shares=99)
        for current_view, valid in (
            (view(*both), True),
            (view(*both), True),
            (view(vm('a')), False),
            (view(*both), True),
            (view(*both, limits=few), False),
            (view(*both, limits=few), False),
            (view(*both), True),
        ):
            plan = subject.decide(current_view)
            self.assertEqual(valid, plan.windows is not None)
            self.assertEqual(valid, not plan.ignored)

    def test_windows_are_checked_again_if_they_change(self):
        config = control_config.ControlConfig()
        policy = FixedWindows(config)
        subject = controller.Controller(
            config, policy, pinning_base.NonePolicy(config), LastValue
        )
        both = (vm('a'), vm('b'))
        self.assertIsNotNone(subject.decide(view(*both)).windows)
        policy.show(0)
        self.assertIsNone(subject.decide(view(*both, tick=2)).windows)

    def test_windows_of_vms_in_the_io_pool_are_dropped(self):
        plan = make(FixedWindows, FixedPins).decide(view(vm('a'), vm('b')))
        self.assertIsNone(plan.windows)
        self.assertIn('I/O pool', plan.ignored[-1].reason)

    def test_vm_in_windows_keeps_period_and_quota_and_shares(self):
        odd = dataclasses.replace(ORIGINAL, shares=2)
        plan = make(Gang, pinning_base.NonePolicy).decide(
            view(vm(in_force=odd))
        )
        self.assertEqual(50_000, plan.vms['a'].slice_us)
        self.assertIsNone(plan.vms['a'].writes)
        self.assertEqual(50_000, plan.windows.cycle_us)

    def test_original_shares_are_restored_without_windows(self):
        odd = dataclasses.replace(ORIGINAL, shares=2)
        plan = make(slices_base.NonePolicy, pinning_base.NonePolicy).decide(
            view(vm(in_force=odd))
        )
        self.assertEqual(model.CpuTune(shares=1_024), plan.vms['a'].writes)
