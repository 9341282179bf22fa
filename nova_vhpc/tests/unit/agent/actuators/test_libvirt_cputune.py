# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Pins to CPUs that go offline before the pins are written."""

import types
from typing import Any
from unittest import mock

import fixtures
import libvirt
from oslotest import base

from nova_vhpc.agent.actuators import libvirt_cputune
from nova_vhpc.agent.guests import guest
from nova_vhpc.agent.libvirt import cgroup_weight, cputune
from nova_vhpc.control import model
from nova_vhpc.tests.unit.agent import fake_libvirt
from nova_vhpc.tests.unit.agent.guests import test_guest
from nova_vhpc.tests.unit.agent.libvirt import (
    idle_kernel,
    test_cgroup_weight,
)
from nova_vhpc.tests.unit.agent.restore import test_cputune

FIRST, SECOND = frozenset({0}), frozenset({1})


class ActuatorTestCase(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.domain = test_cputune.CpusetV1(100_000, -1, 1e9)
        self.guest = test_guest.make()
        self.guest.domain = self.domain
        self.guest.set_expected(cputune.read(self.domain))
        self.guest.written = {}

    def write_tune(self, tune: model.CpuTune) -> None:
        options = types.SimpleNamespace(
            cgroup_root='/nowhere', window_weights='cgroup'
        )
        conf: Any = types.SimpleNamespace(vhpc_agent=options)
        libvirt_cputune.LibvirtCputuneActuator(conf).write(self.guest, tune)


class TestShares(ActuatorTestCase):
    def test_group_left_idle_by_a_window_takes_the_weight(self) -> None:
        """The kernel refuses weights of an idle group."""
        self.useFixture(idle_kernel.IdleKernel())
        files = test_cgroup_weight.CgroupFiles(
            self.useFixture(fixtures.TempDir()).path, 'cpu.shares', '0'
        )
        file = self.guest.weight_file = cgroup_weight.WeightFile(files.weight)
        file.write(test_cgroup_weight.Domain(files), model.IDLE_SHARES)
        self.assertEqual('1', files.idle.read_text())
        idle_at_write: list[str] = []

        def note(*_: Any) -> None:
            idle_at_write.append(files.idle.read_text())

        with mock.patch.object(cputune, 'write_shares', note):
            self.write_tune(model.CpuTune(shares=1024))
        self.assertEqual(['0'], idle_at_write)


class TestPins(ActuatorTestCase):
    def write(self, *pins: frozenset[int]) -> guest.Guest:
        self.write_tune(model.CpuTune(vcpu_pins=pins))
        return self.guest

    def test_pin_to_a_cpu_that_went_offline_is_skipped(self) -> None:
        """That is no failure, because the next ticks do not use the CPU."""
        self.domain.online = (True, False)
        before = self.domain.pins[1]
        guest = self.write(FIRST, SECOND)
        self.assertEqual([(True, False), before], self.domain.pins)
        self.assertEqual(FIRST, guest.expected.vcpupins[0])
        self.assertEqual(cputune.pin_cpus(before), guest.expected.vcpupins[1])

    def test_pin_refused_for_another_reason_raises(self) -> None:
        def refuse(*_: Any) -> None:
            raise fake_libvirt.refused('busy')

        self.domain.pinVcpuFlags = refuse
        self.assertRaises(libvirt.libvirtError, self.write, FIRST, SECOND)

    def test_pin_that_timed_out_raises(self) -> None:
        def refuse(*_: Any) -> None:
            raise fake_libvirt.error(libvirt.VIR_ERR_OPERATION_TIMEOUT)

        self.domain.online = (False, False)
        self.domain.pinVcpuFlags = refuse
        self.assertRaises(libvirt.libvirtError, self.write, FIRST, SECOND)
