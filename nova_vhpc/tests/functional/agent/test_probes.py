# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Probes on real QEMU threads and cgroups."""

import os
import subprocess
import sys
import time

import libvirt

from nova_vhpc.agent.libvirt import domain_xml
from nova_vhpc.agent.probes import base as probe_base
from nova_vhpc.agent.probes import block, cpu_stat, schedstat
from nova_vhpc.linux import qemu_process
from nova_vhpc.tests.functional.agent import base
from nova_vhpc_lab.testbed import cpu_controller
from nova_vhpc_lab.testbed.patience import PATIENCE_S


class TestProbes(base.AgentTestCase):
    """Probes read guests whose vCPUs have to wait."""

    def target(self, domain: libvirt.virDomain) -> probe_base.Target:
        host = qemu_process.Processes()
        pid = host.find(domain.UUIDString())
        self.assertGreater(pid, 0)
        return probe_base.Target(
            domain.UUIDString(),
            domain.name(),
            pid,
            host.vcpu_threads(pid, range(2)),
            host.vcpu_cgroups(pid, range(2)),
            host.block_cgroup(pid),
        )

    def test_vcpu_threads_by_cgroup_and_by_name_are_equal(self) -> None:
        domain = self.domain(None)
        host = qemu_process.Processes()
        pid = host.find(domain.UUIDString())
        by_group = host._threads_by_cgroup(pid, range(2))
        self.assertEqual(2, len(by_group))
        self.assertEqual(by_group, host._threads_by_name(pid, range(2)))
        identity = host.identity(domain.UUIDString(), domain.ID())
        self.assertTrue(
            identity.same_run(
                qemu_process.Processes().identity(
                    domain.UUIDString(), domain.ID()
                )
            )
        )

    def test_groups_are_found_from_another_cgroup_namespace(self) -> None:
        """As in a container, which has a namespace of its own by default."""
        domain = self.domain(None)
        host = qemu_process.Processes()
        pid = host.find(domain.UUIDString())
        (thread, _) = host.vcpu_threads(pid, range(2))
        controller = cpu_controller.CpuController.find()
        group = controller.make_group(f'nova-vhpc-test-{os.getpid()}')
        self.addCleanup(controller.remove_group, group)
        output = subprocess.run(
            [
                'sh',
                '-c',
                f'echo $$ >{group}/cgroup.procs && exec unshare -C "$@"',
                'sh',
                sys.executable,
                '-c',
                'import sys\n'
                'from nova_vhpc.linux import qemu_process\n'
                'pid, thread = map(int, sys.argv[1:])\n'
                'print(open(f"/proc/{pid}/cgroup").read())\n'
                'host = qemu_process.Processes()\n'
                'print(host.vcpu_cgroups(pid, range(2)))\n'
                'print(host.weight_file(pid, thread))\n',
                str(pid),
                str(thread),
            ],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        self.assertIn('/../', output, 'not in a namespace of its own')
        groups, weight_file = output.splitlines()[-2:]
        self.assertEqual(str(host.vcpu_cgroups(pid, range(2))), groups)
        self.assertEqual(str(host.weight_file(pid, thread)), weight_file)

    def test_schedstat_wait_agrees_with_libvirt(self) -> None:
        domain = self.domain(None, busy=True)
        # Both vCPUs on one CPU: each waits for the other.
        for vcpu in range(2):
            domain.pinVcpuFlags(vcpu, (True, False), base.LIVE)
        time.sleep(4)
        reader = schedstat.SchedstatProbe(probe_base.Host()).attach(
            self.target(domain)
        )
        self.addCleanup(reader.close)

        def delays() -> list[int]:
            for one, stats in self.conn.getAllDomainStats(
                libvirt.VIR_DOMAIN_STATS_VCPU
            ):
                if one.UUIDString() == domain.UUIDString():
                    return [stats[f'vcpu.{vcpu}.delay'] for vcpu in range(2)]
            self.fail('no statistics')

        first = delays()
        reader.read()
        time.sleep(2)
        reading = reader.read()
        second = delays()
        libvirt_ns = sum(
            new - old for old, new in zip(first, second, strict=True)
        )
        probe_ns = sum(reading.wait_us) * 1000
        self.assertGreater(probe_ns, 100_000_000)
        # libvirt was asked a moment before and after the probe.
        self.assertLess(abs(libvirt_ns - probe_ns) / libvirt_ns, 0.5)

    def test_schedstat_wait_includes_the_throttled_time(self) -> None:
        domain = self.domain(
            None,
            busy=True,
            cputune='<period>100000</period><quota>10000</quota>',
        )
        target = self.target(domain)
        self.assertEqual(2, len(target.vcpu_groups))
        watch = cpu_stat.CpuStatProbe(probe_base.Host()).attach(target)
        throttle = cpu_stat.CpuStatProbe(probe_base.Host()).attach(target)
        wait = schedstat.SchedstatProbe(probe_base.Host()).attach(target)
        for reader in (watch, throttle, wait):
            self.addCleanup(reader.close)
        self._wait_for_throttling(watch, 100_000)
        throttle.read()
        wait.read()
        # The throttled time of many periods: one that has not ended when the
        # probes are read counts little.
        self._wait_for_throttling(watch, 2_000_000)
        throttle_reading, wait_reading = throttle.read(), wait.read()
        self.assertGreater(throttle_reading.latency_us, 0)
        # schedstat's wait contains the throttled time.
        self.assertGreater(
            wait_reading.latency_us, 0.8 * throttle_reading.latency_us
        )

    def _wait_for_throttling(
        self, reader: probe_base.SyncReader, latency_us: float
    ) -> None:
        """Wait until vCPUs were throttled for so long, by the mean."""
        reader.read()
        throttled_us = 0.0
        give_up_s = time.monotonic() + PATIENCE_S
        while throttled_us < latency_us:
            self.assertLess(time.monotonic(), give_up_s, 'never throttled')
            time.sleep(0.1)
            throttled_us += reader.read().latency_us

    def test_long_wait_is_read_before_it_ends(self) -> None:
        domain = self.domain(
            None,
            busy=True,
            cputune='<period>1000000</period><quota>1000</quota>',
        )
        reader = schedstat.SchedstatProbe(probe_base.Host()).attach(
            self.target(domain)
        )
        self.addCleanup(reader.close)
        readings = []
        for _ in range(50):
            readings.append(reader.read())
            time.sleep(0.1)
        unfinished_waits = [
            wait_us
            for reading in readings[1:]
            for wait_us, runs in zip(
                reading.wait_us, reading.runs, strict=True
            )
            if not runs and wait_us
        ]
        self.assertGreater(len(unfinished_waits), 1, readings)

    def test_block_probe_reads_a_guests_cgroup(self) -> None:
        domain = self.domain(None)
        reader = block.BlockProbe(probe_base.Host()).attach(
            self.target(domain)
        )
        self.assertIsNotNone(reader)
        reader.read()
        self.assertIsNotNone(reader.read())
        reader.close()

    def test_libvirts_domain_xml_is_parsed(self) -> None:
        domain = self.domain({'vhpc:workload': 'latency'}, cpuset='0-1')
        info = domain_xml.parse(domain.XMLDesc(0))
        self.assertTrue(info.ours)
        self.assertEqual({0, 1}, info.cpuset)
        self.assertEqual(2, info.vcpus)
