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
            vhpc_agent=types.SimpleNamespace(cgroup_root=str(self.dir))
        )
        limits = libvirt_cputune.LibvirtCputuneActuator(conf).limits()
        self.assertEqual(
            (1, 10_000) if v2 else (2, 262_144),
            (limits.min_shares, limits.max_shares),
        )
        host = probe_base.Host(cgroup_root=str(self.dir))
        self.assertIsNone(cpu_stat.CpuStatProbe(host).check())
        self.assertIn('cpu', cgroup.controllers(self.dir))

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
