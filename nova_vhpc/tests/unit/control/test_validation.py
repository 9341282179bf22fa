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

"""What cannot be true is dropped, and named."""

import dataclasses
import decimal
import math

from nova_vhpc.control import model, validation
from nova_vhpc.tests import base


def view(*vms, **kwargs):
    kwargs.setdefault('period_us', 100_000)
    kwargs.setdefault('cpus', (model.Cpu(1), model.Cpu(0)))
    return model.HostView(tick=1, now_us=0, vms=vms, **kwargs)


class CheckTest(base.TestCase):
    def sample(self, **values):
        """What is left of one sample, and what was said."""
        checked = validation.check(
            view(model.VmView('a', 2, sample=model.Sample(**values)))
        )
        return checked.view.vms[0].sample, [
            one.reason for one in checked.ignored
        ]

    def test_a_sound_view_is_kept_as_it_is(self):
        vm = model.VmView('a', 2, sample=model.Sample(5.0, 6.0, (1.0, 2.0)))
        least = model.VmView('b', 1, sample=model.Sample(0.0, 0.0, (0.0,)))
        checked = validation.check(view(vm, least))
        self.assertIs(vm, checked.view.vms[0])
        self.assertIs(least, checked.view.vms[1])
        self.assertEqual((), checked.ignored)
        self.assertEqual([0, 1], [cpu.id for cpu in checked.view.cpus])

    def test_impossible_numbers(self):
        for value in (math.nan, math.inf, -1.0, 1e20):
            sample, said = self.sample(io_events=value, sync_latency_us=0.0)
            self.assertIsNone(sample.io_events)
            # Nothing at all is nothing impossible.
            self.assertEqual(0.0, sample.sync_latency_us)
            self.assertEqual([f'io_events = {value}'], said)

    def test_one_impossible_vcpu(self):
        for values in ((1.0, math.nan), (1.0, math.inf), (5.0, -1.0)):
            sample, said = self.sample(vcpu_run_us=values)
            self.assertIsNone(sample.vcpu_run_us)
            self.assertEqual(['vcpu_run_us has impossible values'], said)

    def test_no_list_of_vcpus(self):
        for values in (0, False, '', {}, 3.0, {1.0: 2.0}, {1.0}, range(3)):
            sample, said = self.sample(vcpu_run_us=values)
            self.assertIsNone(sample.vcpu_run_us)
            self.assertEqual(['vcpu_run_us has impossible values'], said)

    def test_numbers_that_cannot_be_added_to_others(self):
        for value in (decimal.Decimal(5), decimal.Decimal('NaN')):
            # Each alone: a fault in one has all others looked at closely.
            sample, said = self.sample(io_events=value)
            self.assertEqual(model.Sample(), sample)
            self.assertEqual([f'io_events = {value}'], said)
            sample, said = self.sample(vcpu_run_us=(value,))
            self.assertEqual(model.Sample(), sample)
            self.assertEqual(['vcpu_run_us has impossible values'], said)

    def test_no_vcpus_measured_is_no_fault(self):
        sample, said = self.sample(vcpu_run_us=())
        self.assertEqual((), sample.vcpu_run_us)
        self.assertEqual([], said)

    def test_vms_that_cannot_be(self):
        checked = validation.check(
            view(
                model.VmView('', 2),
                model.VmView(['a'], 2),
                model.VmView(7, 2),
                model.VmView('a', 0),
                model.VmView('b', 10**6),
            )
        )
        self.assertEqual((), checked.view.vms)
        self.assertEqual(
            [*['has no uuid'] * 3, 'has 0 vCPUs', 'has 1000000 vCPUs'],
            [one.reason for one in checked.ignored],
        )

    def test_a_specified_slice_that_is_none(self):
        # libvirt takes whole numbers only.
        for slice_us in (0, 2_500.5):
            checked = validation.check(
                view(model.VmView('a', 2, time_slice_us=slice_us))
            )
            self.assertIsNone(checked.view.vms[0].time_slice_us)
            self.assertEqual(
                f'time slice {slice_us} us', checked.ignored[0].reason
            )

    def test_a_period_that_is_none(self):
        checked = validation.check(view(period_us=0))
        self.assertEqual(100_000, checked.view.period_us)
        self.assertIn('control period 0 us', checked.ignored[0].reason)

    def test_windows_that_are_late_by_no_number(self):
        for late_us in (math.nan, math.inf, -1.0):
            checked = validation.check(view(window_late_us=late_us))
            self.assertEqual(0.0, checked.view.window_late_us)
            self.assertEqual(
                [f'windows late by {late_us} us'],
                [one.reason for one in checked.ignored],
            )

    def test_limits_within_libvirts(self):
        limits = model.ActuatorLimits(
            min_period_us=0, max_quota_us=10**18, effective_min_slice_us=4_000
        )
        checked = validation.check(view(limits=limits))
        self.assertEqual(1_000, checked.view.limits.min_period_us)
        self.assertEqual(17_592_186_044_415, checked.view.limits.max_quota_us)
        self.assertEqual(4_000, checked.view.limits.effective_min_slice_us)
        self.assertIn('actuator limits', checked.ignored[0].reason)

    def test_every_limit_within_libvirts(self):
        wide = model.ActuatorLimits(0, 2_000_000, 0, 10**18, 1, 0, 10**6)
        self.assertEqual(
            model.ActuatorLimits(
                1_000, 1_000_000, 1_000, 17_592_186_044_415, 1, 1, 262_144
            ),
            validation.check(view(limits=wide)).view.limits,
        )

    def test_a_limit_that_is_no_float(self):
        # No shares are within it, and nobody comes to grief at its size.
        limits = model.ActuatorLimits(min_shares=10**400)
        self.assertEqual(
            262_145,
            validation.check(view(limits=limits)).view.limits.min_shares,
        )


class KindTest(base.TestCase):
    """Things that are not even of their type."""

    def said(self, shown):
        checked = validation.check(shown)
        return checked.view, [
            (one.uuid, one.reason) for one in checked.ignored
        ]

    def test_no_sequence(self):
        for name, kind in (
            ('vms', 'VmView'),
            ('others', 'OtherVm'),
            ('cpus', 'Cpu'),
        ):
            for value in (None, math.nan, 'x', object()):
                shown = dataclasses.replace(view(), **{name: value})
                kept, said = self.said(shown)
                self.assertEqual((), tuple(getattr(kept, name)))
                self.assertIn(f'in place of {kind}s', said[0][1])

    def test_one_of_another_kind(self):
        vm = model.VmView('a', 2)
        kept, said = self.said(view(vm, None, 7))
        self.assertEqual((vm,), kept.vms)
        self.assertEqual(
            [
                ('', 'None in place of a VmView'),
                ('', '7 in place of a VmView'),
            ],
            said,
        )

    def test_no_sample(self):
        kept, said = self.said(view(model.VmView('a', 2, sample=None)))
        self.assertEqual(model.Sample(), kept.vms[0].sample)
        self.assertEqual([('a', 'None in place of a Sample')], said)

    def test_numbers_of_hundreds_of_digits(self):
        many = 10**400
        for name in ('period_us', 'quota_us', 'shares'):
            for value in (many, -many):
                tune = model.CpuTune(**{name: value})
                kept, said = self.said(
                    view(model.VmView('a', 2, original=tune))
                )
                self.assertEqual((), kept.vms)
                self.assertEqual(
                    [('a', f'original {name} cannot be so')], said
                )
        kept, said = self.said(view(others=(model.OtherVm('o', 2, many),)))
        self.assertEqual((model.OtherVm('o', 2),), kept.others)
        self.assertEqual([('o', 'shares cannot be so')], said)

    def test_no_limit_as_cgroup_v2_shows_it(self):
        tune = model.CpuTune(100_000, 18_446_744_073_709_551, 1_024)
        vm = model.VmView('a', 2, original=tune, in_force=tune)
        kept, said = self.said(view(vm))
        self.assertEqual(((vm,), []), (kept.vms, said))

    def test_one_number_for_all_vcpus(self):
        sample = model.Sample(5.0, vcpu_run_us=math.nan)
        kept, said = self.said(view(model.VmView('a', 2, sample=sample)))
        self.assertEqual(model.Sample(5.0), kept.vms[0].sample)
        self.assertEqual([('a', 'vcpu_run_us has impossible values')], said)

    def test_a_cluster_without_a_name(self):
        kept, said = self.said(view(model.VmView('a', 2, cluster=7)))
        self.assertIsNone(kept.vms[0].cluster)
        self.assertEqual([('a', 'cluster 7')], said)

    def test_a_cpu_without_a_number(self):
        cpus = (model.Cpu(None), model.Cpu(1))
        kept, said = self.said(view(cpus=cpus))
        self.assertEqual(cpus[1:], kept.cpus)
        self.assertEqual([('', 'host CPU None')], said)

    def test_limits_that_are_none(self):
        for limits in (None, model.ActuatorLimits(max_shares=math.nan)):
            kept, said = self.said(view(limits=limits))
            self.assertEqual(model.ActuatorLimits(), kept.limits)
            self.assertIn("the actuator's limits", said[0][1])

    def test_peers_of_another_kind(self):
        peer = model.PeerView(io=True)
        kept, said = self.said(view(peers={'c': None, 'd': peer}))
        self.assertEqual({'d': peer}, kept.peers)
        self.assertEqual([('', 'what peers say of cluster c')], said)
        kept, said = self.said(view(peers=3))
        self.assertEqual(({}, [('', 'peers 3')]), (kept.peers, said))

    def test_a_slice_of_peers_that_is_none(self):
        for slice_us in (2_500.5, 0, -1, 'x', True):
            peers = {'c': model.PeerView(io=True, min_slice_us=slice_us)}
            kept, said = self.said(view(peers=peers))
            self.assertEqual({'c': model.PeerView(io=True)}, kept.peers)
            self.assertEqual(
                [('', f'time slice {slice_us} us of cluster c on its peers')],
                said,
            )


class AgainTest(base.TestCase):
    """What was sound is believed while it is the same object."""

    def test_what_was_wrong_is_named_each_time(self):
        shown = view(
            model.VmView('a', 2, sample=model.Sample(io_events=math.nan)),
            model.VmView('b', 0),
            model.VmView('c', 1, time_slice_us=-1),
            model.VmView('d', 1),
            model.VmView('d', 1),
            others=(model.OtherVm('d', 1),),
            cpus=(model.Cpu(1), model.Cpu(-1)),
        )
        first = validation.check(shown)
        self.assertEqual(6, len(first.ignored))
        again = validation.check(shown, first)
        self.assertEqual(
            (first.view, first.ignored), (again.view, again.ignored)
        )

    def test_another_sample_is_looked_at(self):
        sound = model.VmView('a', 2)
        wrong = model.VmView('a', 2, sample=model.Sample(io_events=-1.0))
        first = validation.check(view(sound))
        again = validation.check(view(wrong), first)
        self.assertEqual(1, len(again.ignored))
        self.assertEqual((), validation.check(view(sound), again).ignored)

    def test_other_cpus_are_looked_at(self):
        first = validation.check(view(cpus=(model.Cpu(1), model.Cpu(0))))
        again = validation.check(
            view(cpus=(model.Cpu(3), model.Cpu(2))), first
        )
        self.assertEqual([2, 3], [cpu.id for cpu in again.view.cpus])
        again = validation.check(view(cpus=None), again)
        self.assertEqual(1, len(again.ignored))
        self.assertEqual(
            1, len(validation.check(view(cpus=None), again).ignored)
        )
