# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of :mod:`nova_vhpc.agent.metrics.vm_metrics`."""

import dataclasses
import threading

from oslotest import base
from prometheus_client import parser

from nova_vhpc.agent.guests.guest import Guest
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.agent.metrics import vm_metrics
from nova_vhpc.control import model
from nova_vhpc.tests.unit.agent.daemon import status_document
from nova_vhpc.tests.unit.agent.guests import test_guest

PREFIX = 'nova_vhpc_'


class VmMetricsTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.guests = {'u': test_guest.make()}
        self.result = status_document.tick_result('u')
        self.paused = 0
        self.metrics = vm_metrics.VmMetrics(
            lambda: self.guests, lambda: self.result, pause=self.pause
        )

    def pause(self) -> None:
        self.paused += 1

    def samples(self) -> dict[str, list]:
        """Return all samples by name, as Prometheus reads them."""
        found: dict[str, list] = {}
        for family in parser.text_string_to_metric_families(
            self.metrics.text()
        ):
            for sample in family.samples:
                name = sample.name.removeprefix(PREFIX)
                found.setdefault(name, []).append(sample)
        return found

    def value(self, name: str) -> float | None:
        samples = self.samples().get(name, [])
        self.assertLessEqual(len(samples), 1)
        return samples[0].value if samples else None

    def rename(self, guest: Guest, **changes: object) -> None:
        guest.set_info(dataclasses.replace(guest.info, **changes))

    def test_labels_name_server_cluster_and_project(self) -> None:
        self.rename(self.guests['u'], server_name='node "1"\\\n', project='p')
        view = self.result.view
        vms = (dataclasses.replace(view.vms[0], cluster='c'),)
        self.result = dataclasses.replace(
            self.result, view=dataclasses.replace(view, vms=vms)
        )
        labels = {
            'uuid': 'u',
            'name': 'vm',
            'server': 'node "1"\\\n',
            'cluster': 'c',
            'project': 'p',
        }
        for name, samples in self.samples().items():
            self.assertEqual([labels], [one.labels for one in samples], name)

    def test_decisions_are_in_seconds(self) -> None:
        self.guests['u'].note_written(
            {cputune.PERIOD: 5_000, cputune.QUOTA: 2_500}
        )
        self.assertEqual(0.005, self.value('vm_slice_seconds'))
        self.assertEqual(0.005, self.value('vm_period_seconds'))
        self.assertEqual(0.0025, self.value('vm_quota_seconds'))
        self.assertEqual(1.0, self.value('vm_io_phase'))

    def test_values_that_are_unknown_have_no_sample(self) -> None:
        self.result = None
        names = self.samples().keys()
        for name in (
            'vcpu_delay_seconds_total',
            'vcpu_throttled_seconds_total',
            'vm_uplink_receive_packets_total',
            'vm_slice_seconds',
            'vm_quota_seconds',
            'vm_window_width_seconds',
            'vm_io_phase',
        ):
            self.assertNotIn(name, names)
        self.assertIn('vm_writes_total', names)

    def test_vm_that_spins_and_is_held_up_counts(self) -> None:
        self.assertIsNone(self.value('vm_spinning_held_up'))
        for state in model.WaitState:
            judged = model.Waiting(state, 2, 2, 0.5)
            plan = dataclasses.replace(self.result.plan, waiting={'u': judged})
            self.result = dataclasses.replace(self.result, plan=plan)
            self.assertEqual(
                state is model.WaitState.HELD_UP,
                self.value('vm_spinning_held_up'),
            )

    def test_windows_have_width_and_share(self) -> None:
        turns = tuple(
            model.Turn(width_us, frozenset(favoured), {})
            for width_us, favoured in ((10_000, 'u'), (30_000, 'v'))
        )
        plan = dataclasses.replace(
            self.result.plan, windows=model.WindowSchedule(turns, {})
        )
        self.result = dataclasses.replace(self.result, plan=plan)
        self.guests['u'].window_s = 1.5
        self.assertEqual(0.01, self.value('vm_window_width_seconds'))
        self.assertEqual(0.25, self.value('vm_window_share_ratio'))
        self.assertEqual(1.5, self.value('vm_window_seconds_total'))

    def test_server_that_is_gone_leaves_nothing(self) -> None:
        for number in range(50):
            guest = test_guest.make()
            self.rename(guest, uuid=f'u{number}')
            self.guests = {guest.uuid: guest}
            samples = self.samples()
            self.assertEqual(1, len(samples['vm_writes_total']))
            self.assertEqual(1, len(self.metrics._counters))
        self.guests = {}
        self.assertEqual({}, self.samples())
        self.assertEqual({}, self.metrics._counters)

    def test_tick_is_let_through_at_each_vm_and_metric(self) -> None:
        self.metrics.text()
        self.assertGreaterEqual(
            self.paused, len(self.guests) + len(vm_metrics.FAMILIES)
        )

    def test_writing_waits_while_a_tick_is_under_way(self) -> None:
        idle = threading.Event()
        made = vm_metrics.VmMetrics(
            lambda: self.guests, lambda: self.result, pause=idle.wait
        )
        thread = threading.Thread(target=made.text, daemon=True)
        thread.start()
        thread.join(0.05)
        self.assertTrue(thread.is_alive())
        idle.set()
        thread.join(60)
        self.assertFalse(thread.is_alive())
