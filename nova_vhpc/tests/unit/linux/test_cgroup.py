# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Hosts with cgroup v2, v1, or both."""

import pathlib
import types

import fixtures

from nova_vhpc.agent.actuators import libvirt_cputune
from nova_vhpc.agent.probes import base as probe_base
from nova_vhpc.agent.probes import cpu_stat
from nova_vhpc.linux import cgroup
from nova_vhpc.tests import base


class CgroupTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.dir = pathlib.Path(self.useFixture(fixtures.TempDir()).path)

    def put(self, path, text=''):
        (self.dir / path).parent.mkdir(parents=True, exist_ok=True)
        (self.dir / path).write_text(text)

    def assert_cpu(self, v2):
        """Assert what module, actuator and probe say about the controller."""
        self.assertEqual(v2, cgroup.cpu_is_v2(self.dir))
        conf = types.SimpleNamespace(
            vhpc_agent=types.SimpleNamespace(
                cgroup_root=str(self.dir), window_weights='cgroup'
            )
        )
        limits = libvirt_cputune.LibvirtCputuneActuator(conf).limits()
        self.assertEqual(
            (1, 10_000) if v2 else (2, 262_144),
            (limits.min_shares, limits.max_shares),
        )
        host = probe_base.Host(cgroup_root=str(self.dir))
        self.assertIsNone(cpu_stat.CpuStatProbe(host).check())
        self.assertIn('cpu', cgroup.controllers(self.dir))

    def can_idle(self):
        """Return what module and actuator say about idle groups."""
        found = cgroup.can_idle(self.dir)
        for way in ('cgroup', 'libvirt'):
            conf = types.SimpleNamespace(
                vhpc_agent=types.SimpleNamespace(
                    cgroup_root=str(self.dir), window_weights=way
                )
            )
            limits = libvirt_cputune.LibvirtCputuneActuator(conf).limits()
            self.assertEqual(found, limits.can_idle)
        return found

    def test_groups_can_be_idle_on_v2(self):
        self.put('cgroup.controllers', 'cpuset cpu io\n')
        self.assertFalse(self.can_idle())
        self.put('machine.slice/cpu.idle', '0\n')
        self.assertTrue(self.can_idle())

    def test_groups_can_be_idle_on_v1(self):
        self.put('cpuset/machine/cpu.idle', '0\n')
        self.put('cpu,cpuacct/machine/cpu.shares', '1024\n')
        self.assertFalse(self.can_idle())
        self.put('cpu,cpuacct/machine/cpu.idle', '0\n')
        self.assertTrue(self.can_idle())

    def test_groups_cannot_be_idle_without_cgroups(self):
        self.dir = self.dir / 'absent'
        self.assertFalse(self.can_idle())

    def test_actuator_looks_again_until_a_group_can_be_idle(self):
        # On a host without guests there may be no group.
        conf = types.SimpleNamespace(
            vhpc_agent=types.SimpleNamespace(
                cgroup_root=str(self.dir), window_weights='cgroup'
            )
        )
        actuator = libvirt_cputune.LibvirtCputuneActuator(conf)
        self.assertFalse(actuator.limits().can_idle)
        self.put('machine.slice/cpu.idle', '0\n')
        self.assertTrue(actuator.limits().can_idle)

    def test_cpu_controller_of_v2_is_found(self):
        self.put('cgroup.controllers', 'cpuset cpu io\n')
        self.assert_cpu(v2=True)
        self.assertEqual({'cpuset', 'cpu', 'io'}, cgroup.controllers(self.dir))

    def test_cpu_controller_of_v1_is_found(self):
        for name in ('cpu,cpuacct', 'cpuset'):
            self.put(f'{name}/cpu.stat')
        self.assert_cpu(v2=False)
        self.assertEqual(
            {'cpu', 'cpuacct', 'cpuset'}, cgroup.controllers(self.dir)
        )

    def test_cpu_is_v1_on_a_hybrid_host_with_all_on_v1(self):
        self.put('cpu/cpu.stat')
        self.put('unified/cgroup.controllers', 'hugetlb\n')
        self.assert_cpu(v2=False)

    def test_cpu_is_v2_on_a_hybrid_host_with_cpu_on_v2(self):
        """libvirt uses each controller in the hierarchy that has it."""
        self.put('memory/memory.stat')
        self.put('unified/cgroup.controllers', 'cpuset cpu\n')
        self.assert_cpu(v2=True)
        self.assertLess(
            {'cpu', 'cpuset', 'memory'}, cgroup.controllers(self.dir)
        )

    def test_no_controllers_without_cgroups(self):
        absent = self.dir / 'absent'
        self.assertEqual(set(), cgroup.controllers(absent))
        self.assertFalse(cgroup.cpu_is_v2(absent))
        host = probe_base.Host(cgroup_root=str(absent))
        self.assertIn('no cpu controller', cpu_stat.CpuStatProbe(host).check())


class LocateTest(base.TestCase):
    """Groups as /proc/PID/cgroup names them in a cgroup namespace."""

    DOMAIN = r'machine-qemu\x2d1\x2dvm.scope/libvirt'

    def setUp(self):
        super().setUp()
        self.mount = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.group = self.mount / 'machine.slice' / self.DOMAIN
        self.group.mkdir(parents=True)

    def test_path_of_the_hosts_namespace_is_below_the_mount(self):
        path = f'/machine.slice/{self.DOMAIN}'
        self.assertEqual(self.group, cgroup.locate(self.mount, path))
        self.assertEqual(self.mount, cgroup.locate(self.mount, '/'))

    def test_group_that_shares_no_parent_is_found(self):
        path = f'/../../machine.slice/{self.DOMAIN}'
        self.assertEqual(self.group, cgroup.locate(self.mount, path))

    def test_group_that_shares_its_slice_is_found(self):
        """The agent's container of podman is in machine.slice, too."""
        for levels in ('/..', '/../..'):
            path = f'{levels}/{self.DOMAIN}'
            self.assertEqual(self.group, cgroup.locate(self.mount, path))

    def test_name_of_two_groups_means_neither(self):
        """Two containers may each have a libvirt of their own."""
        (self.mount / 'other.slice' / self.DOMAIN).mkdir(parents=True)
        found = cgroup.locate(self.mount, f'/../{self.DOMAIN}')
        self.assertFalse(found.exists())

    def test_group_that_is_not_mounted_stays_below_the_mount(self):
        found = cgroup.locate(self.mount, '/../../system.slice/gone')
        self.assertFalse(found.exists())
        self.assertIn(self.mount, found.parents)

    def test_wildcards_in_a_name_are_literal(self):
        (self.mount / 'a' / '[q]*').mkdir(parents=True)
        found = cgroup.locate(self.mount, '/../[q]*')
        self.assertEqual(self.mount / 'a' / '[q]*', found)
        self.assertFalse(cgroup.locate(self.mount, '/../*').exists())
