# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What plugins and other hosts supply is checked in every tick."""

import math

from nova_vhpc.control import model
from nova_vhpc.control.validation import view
from nova_vhpc.tests import base


def host_view(*vms, **kwargs):
    return model.HostView(
        tick=1,
        now_us=0,
        period_us=100_000,
        cpus=(model.Cpu(0), model.Cpu(1)),
        vms=vms,
        **kwargs,
    )


class CheckTest(base.TestCase):
    def check(self, shown):
        diagnostics = []
        checked = view.check(shown, diagnostics)
        return checked, [(one.uuid, one.reason) for one in diagnostics]

    def test_valid_view_is_kept_as_it_is(self):
        vm = model.VmView('a', 2, sample=model.Sample(5.0, 6.0, (1.0, 2.0)))
        other = model.OtherVm('o', 2)
        shown = host_view(vm, others=(other,))
        checked, said = self.check(shown)
        self.assertEqual((shown, []), (checked, said))
        self.assertIs(vm, checked.vms[0])
        self.assertIs(other, checked.others[0])

    def test_impossible_samples_are_named_in_each_tick(self):
        wrong = model.Sample(io_events=math.nan)
        shown = host_view(
            model.VmView('a', 2, sample=wrong),
            model.VmView('b', 2),
            others=(model.OtherVm('o', 1, sample=wrong),),
        )
        for _ in range(2):
            checked, said = self.check(shown)
            self.assertEqual(
                [('a', 'io_events = nan'), ('o', 'io_events = nan')], said
            )
            self.assertEqual(model.Sample(), checked.vms[0].sample)
            self.assertEqual(model.Sample(), checked.others[0].sample)

    def test_vm_shown_as_managed_and_unmanaged_counts_as_managed(self):
        vm, other = model.VmView('a', 2), model.OtherVm('o', 1)
        checked, said = self.check(
            host_view(vm, others=(model.OtherVm('a', 2), other))
        )
        self.assertEqual(((vm,), (other,)), (checked.vms, checked.others))
        self.assertEqual([], said)

    def test_limits_and_peers_are_checked(self):
        for _ in range(2):
            checked, said = self.check(
                host_view(
                    limits=model.ActuatorLimits(min_shares=0),
                    peers={'c': None},
                )
            )
            self.assertEqual(1, checked.limits.min_shares)
            self.assertEqual({}, checked.peers)
            self.assertEqual(
                [
                    ('', 'what peers say of cluster c'),
                    ('', 'actuator limits wider than libvirt takes'),
                ],
                said,
            )
