# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Writes to a simulated host, late as by libvirt."""

import random

from nova_vhpc.control import model
from nova_vhpc.tests import base
from nova_vhpc_lab.sim import libvirt_writer
from nova_vhpc_lab.tests.unit.sim import clock

ALL = frozenset({0, 1})


class RecordingHost:
    """Takes note of what is set, and when."""

    def __init__(self, agenda):
        self.agenda = agenda
        self.calls = []
        self.idle = {}

    def set_bandwidth(self, vm, period_us, quota_us):
        self.calls.append((self.agenda.now_us, vm, (period_us, quota_us)))

    def set_weight(self, vm, weight):
        self.calls.append((self.agenda.now_us, vm, weight))

    def set_idle(self, vm, idle):
        self.idle[vm] = idle

    def set_pins(self, vm, pins):
        self.calls.append((self.agenda.now_us, vm, pins))


class TestLibvirtWriter(base.TestCase):
    def setUp(self):
        super().setUp()
        self.agenda = clock.agenda()
        self.host = RecordingHost(self.agenda)
        self.in_force = {
            name: model.CpuTune(100_000, -1, 1_024, (ALL,) * 2)
            for name in 'abcdefgh'
        }
        self.writer = libvirt_writer.LibvirtWriter(
            self.host,
            self.agenda,
            {name: number for number, name in enumerate(self.in_force)},
            self.in_force,
            random.Random(1),
        )

    def test_each_moved_vcpu_takes_one_call(self):
        pins = (frozenset({0}), frozenset({1}))
        self.writer.write('a', model.CpuTune(vcpu_pins=pins))
        self.agenda.run(100_000)
        first, second = self.host.calls
        self.assertEqual((frozenset({0}), ALL), first[2])
        self.assertEqual(pins, second[2])
        shortest_us, longest_us = libvirt_writer.CALL_US
        for duration_us in (first[0], second[0] - first[0]):
            self.assertGreaterEqual(duration_us, shortest_us)
            self.assertLessEqual(duration_us, longest_us + 1)
        self.assertEqual(pins, self.in_force['a'].vcpu_pins)

    def test_group_is_no_longer_idle_before_its_weight_is_written(self):
        self.writer.write('a', model.CpuTune(shares=512))
        self.agenda.run(100_000)
        self.assertEqual({0: False}, self.host.idle)
        self.assertEqual([512], [call[2] for call in self.host.calls])

    def test_values_in_force_are_not_written(self):
        self.writer.write('a', self.in_force['a'])
        self.agenda.run(100_000)
        self.assertEqual([], self.host.calls)

    def test_newer_plan_replaces_what_is_left_of_the_older(self):
        self.writer.write('a', model.CpuTune(100_000, 50_000, 512))
        self.writer.write('a', model.CpuTune(100_000, 80_000))
        self.agenda.run(100_000)
        self.assertEqual(
            [(100_000, 50_000), (100_000, 80_000)],
            [call[2] for call in self.host.calls],
        )
        self.assertEqual(80_000, self.in_force['a'].quota_us)
        self.assertEqual(1_024, self.in_force['a'].shares)

    def test_libvirtd_serves_five_calls_at_a_time(self):
        for name in self.in_force:
            self.writer.write(name, model.CpuTune(shares=512))
        self.agenda.run(100_000)
        times_us = sorted(call[0] for call in self.host.calls)
        self.assertEqual(8, len(times_us))
        shortest_us = libvirt_writer.CALL_US[0]
        self.assertGreaterEqual(times_us[5], 2 * shortest_us)
