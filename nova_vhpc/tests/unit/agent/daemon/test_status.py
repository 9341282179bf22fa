# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of :mod:`nova_vhpc.agent.daemon.status`."""

import dataclasses
import json

from oslotest import base

from nova_vhpc.agent.daemon import status
from nova_vhpc.control import model
from nova_vhpc.tests.unit.agent.daemon import status_document
from nova_vhpc.tests.unit.agent.guests import test_guest


class StatusTest(base.BaseTestCase):
    def test_guest_has_plan_and_sample(self) -> None:
        (vm,) = status_document.document()['vms']
        self.assertEqual('io', vm['phase'])
        self.assertEqual(5_000, vm['slice_us'])
        self.assertEqual(100_000, vm['period_us'])
        self.assertEqual(['0-1', '0-1'], vm['vcpu_pins'])
        self.assertEqual(0.5, vm['run_us'])
        json.dumps(vm)

    def test_guest_has_the_servers_name_beside_the_domains(self) -> None:
        guest = test_guest.make()
        guest.info = dataclasses.replace(guest.info, server_name='wn-1')
        (vm,) = status.guest_statuses({'u': guest}, None)
        self.assertEqual(('vm', 'wn-1'), (vm['name'], vm['server_name']))

    def test_guest_has_its_own_diagnostics_only(self) -> None:
        result = status_document.tick_result('u')
        result = dataclasses.replace(
            result,
            plan=dataclasses.replace(
                result.plan,
                ignored=(
                    model.Diagnostic('u', 'too wide'),
                    model.Diagnostic('x', 'has no uuid'),
                ),
            ),
        )
        (vm,) = status.guest_statuses({'u': test_guest.make()}, result)
        self.assertEqual(['too wide'], vm['remarks'])

    def test_spinning_guest_is_named_with_windows_only_while_played(self):
        result = status_document.tick_result('u')
        judged = model.Waiting(model.WaitState.HELD_UP, 2, 2, 0.5)
        turns = (
            model.Turn(10, frozenset('u'), {}),
            model.Turn(30, frozenset(), {}),
        )
        plan = dataclasses.replace(
            result.plan,
            waiting={'u': judged},
            windows=model.WindowSchedule(turns, {}),
        )
        result = dataclasses.replace(result, plan=plan)
        for is_playing, finding in (
            (False, 'at most 50% of the time'),
            (True, '25% of the time, in gang windows'),
        ):
            (vm,) = status.guest_statuses(
                {'u': test_guest.make()}, result, is_playing
            )
            self.assertEqual('held-up', vm['waiting']['state'])
            self.assertIn(finding, vm['waiting']['finding'])
            self.assertIn('let it wait', vm['waiting']['remedy'])
            json.dumps(vm)

    def test_members_that_share_cpus_with_each_other_are_remarked(self):
        result = status_document.tick_result('u')
        (vm,) = result.view.vms
        cpus = len(result.view.cpus)
        for vcpus, remarks in ((cpus, 1), (cpus - vm.vcpus, 0)):
            sibling = dataclasses.replace(vm, uuid='v', vcpus=vcpus)
            for cluster, factor in (('c', 1), (None, 0)):
                vms = [
                    dataclasses.replace(one, cluster=cluster)
                    for one in (vm, sibling)
                ]
                view = dataclasses.replace(result.view, vms=tuple(vms))
                (shown,) = status.guest_statuses(
                    {'u': test_guest.make()},
                    dataclasses.replace(result, view=view),
                )
                self.assertEqual(remarks * factor, len(shown['remarks']))

    def test_guest_before_the_first_tick_has_no_phase(self) -> None:
        (vm,) = status.guest_statuses({'u': test_guest.make()}, None)
        self.assertIsNone(vm['phase'])
        self.assertIsNone(vm['waiting'])
        json.dumps(vm)
