# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What plugins and other hosts supply is checked in every tick."""

import dataclasses
import decimal
import math

from nova_vhpc.control import checks, model
from nova_vhpc.tests import base

LIMITS = model.ActuatorLimits(min_shares=2, max_shares=10_000)
SHARES = {'a': 100, 'b': 2}
TURN = model.Turn(50_000, frozenset('a'), SHARES, {'a': (0, 1)})
SCHEDULE = model.WindowSchedule((TURN,), SHARES)


def host_view(*vms, **kwargs):
    cpus = (model.Cpu(0), model.Cpu(1))
    return model.HostView(1, 0, 100_000, cpus, vms, **kwargs)


class CheckViewTest(base.TestCase):
    def check(self, view):
        diagnostics = []
        checked = checks.check_view(view, diagnostics)
        return checked, [(one.uuid, one.reason) for one in diagnostics]

    def test_valid_view_is_kept_as_it_is(self):
        for sample in (
            model.Sample(5.0, 6.0, (1.0, 2.0)),
            model.Sample(0.0, 0, (0.0,)),
            model.Sample(vcpu_run_us=()),
            model.Sample(),
        ):
            vm = model.VmView('a', 2, sample=sample)
            other = model.OtherVm('o', 2, sample=sample)
            shown = host_view(vm, others=(other,))
            checked, said = self.check(shown)
            self.assertEqual((shown, []), (checked, said))
            self.assertIs(vm, checked.vms[0])
            self.assertIs(other, checked.others[0])

    def test_impossible_measurement_is_left_out_and_named(self):
        numbers = (math.nan, math.inf, -1.0, 1e20, 'x', decimal.Decimal(5))
        for field, wrong in (
            *(('io_events', number) for number in numbers),
            # One impossible vCPU leaves out all vCPUs.
            *(('vcpu_run_us', (1.0, number)) for number in numbers),
            ('vcpu_run_us', 0),
            ('vcpu_run_us', math.nan),
            ('vcpu_runs', 3),
        ):
            sample = model.Sample(5.0, **{field: wrong})
            with self.subTest(field=field, wrong=wrong):
                checked, said = self.check(
                    host_view(
                        model.VmView('a', 2, sample=sample),
                        model.VmView('b', 2),
                        others=(model.OtherVm('o', 1, sample=sample),),
                    )
                )
                self.assertEqual(
                    [(uuid, f'{field} is impossible') for uuid in 'ao'], said
                )
                for vm in (checked.vms[0], checked.others[0]):
                    self.assertEqual(model.Sample(5.0), vm.sample)

    def test_vm_shown_as_managed_and_unmanaged_counts_as_managed(self):
        vm, other = model.VmView('a', 2), model.OtherVm('o', 1)
        checked, said = self.check(
            host_view(vm, others=(model.OtherVm('a', 2), other))
        )
        self.assertEqual(((vm,), (other,)), (checked.vms, checked.others))
        self.assertEqual([], said)

    def test_impossible_statement_of_a_peer_is_left_out(self):
        for slice_us in (2_500.5, 0, -1, 'x', True):
            peer = model.PeerView(io=True, min_slice_us=slice_us)
            checked, said = self.check(host_view(peers={'c': peer, 'd': None}))
            self.assertEqual({'c': model.PeerView(io=True)}, checked.peers)
            self.assertEqual(
                [
                    ('', 'time slice of peers of c'),
                    ('', 'what peers say of cluster d'),
                ],
                said,
            )

    def test_limits_are_cut_down_to_libvirts(self):
        wide = model.ActuatorLimits(0, 2_000_000, 0, 10**18, 1, 0, 10**6)
        for limits, expected in (
            (
                wide,
                model.ActuatorLimits(
                    1_000, 1_000_000, 1_000, 17_592_186_044_415, 1, 1, 262_144
                ),
            ),
            (
                # A float cannot hold it: no value is allowed.
                model.ActuatorLimits(min_shares=10**400),
                model.ActuatorLimits(min_shares=262_145),
            ),
        ):
            checked, said = self.check(host_view(limits=limits))
            self.assertEqual(expected, checked.limits)
            self.assertEqual(
                [('', 'actuator limits wider than libvirt takes')], said
            )
            again, _ = self.check(host_view(limits=limits))
            self.assertIs(checked.limits, again.limits)


class WindowFaultTest(base.TestCase):
    def fault(self, uuids='ab', limits=LIMITS, **changes):
        return checks.window_fault(
            dataclasses.replace(SCHEDULE, **changes), frozenset(uuids), limits
        )

    def fault_of_turn(self, limits=LIMITS, **changes):
        turn = dataclasses.replace(TURN, **changes)
        return self.fault(turns=(turn,), limits=limits)

    def test_schedule_within_limits_has_no_fault(self):
        shares = {'a': LIMITS.max_shares, 'b': LIMITS.min_shares}
        self.assertIsNone(self.fault())
        self.assertIsNone(
            self.fault_of_turn(favoured=frozenset('ab'), shares=shares)
        )
        self.assertIsNone(self.fault(shares_after=shares))

    def test_faults_are_named(self):
        for expected, fault in (
            ('no turns', self.fault(turns=())),
            ('a turn of 0 us', self.fault_of_turn(width_us=0)),
            ('not in the view', self.fault('a')),
            ('different VMs', self.fault_of_turn(shares={'a': 100})),
            ('without shares', self.fault_of_turn(favoured=frozenset('c'))),
            ('without shares', self.fault_of_turn(cpus={'c': (0,)})),
            (
                'a CPU to two',
                self.fault_of_turn(cpus={'a': (0, 1), 'b': (1,)}),
            ),
        ):
            with self.subTest(expected):
                self.assertIn(expected, fault)

    def test_shares_beyond_the_actuators_limits_are_a_fault(self):
        idle = dataclasses.replace(LIMITS, can_idle=True)
        for shares in (1, 10_001, -3, model.IDLE_SHARES):
            changed = {'a': 100, 'b': shares}
            self.assertEqual(
                f'shares of {shares}', self.fault_of_turn(shares=changed)
            )
            # After the windows no VM may be left idle.
            self.assertEqual(
                f'shares of {shares}',
                self.fault(shares_after=changed, limits=idle),
            )
        self.assertIsNone(
            self.fault_of_turn(
                shares={'a': 100, 'b': model.IDLE_SHARES}, limits=idle
            )
        )
