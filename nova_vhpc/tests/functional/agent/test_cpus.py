# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""CPUs of the host that are switched off and on.

The machine's own stay on: libvirtd and the agent are shown a file that says
otherwise, and the kernel takes pins to all of them.
"""

import os
import pathlib
import subprocess

import libvirt

from nova_vhpc.linux import qemu_process
from nova_vhpc.tests.functional.agent import base

ONLINE = '/sys/devices/system/cpu/online'
PARALLEL = {'vhpc:workload': 'parallel'}


def take_from_groups(
    domain: libvirt.virDomain, left: str
) -> list[pathlib.Path]:
    """Leave a VM's control groups these CPUs only.

    :returns: the groups; none with cgroup v2, which takes any pins.
    """
    pid = qemu_process.Processes().find(domain.UUIDString())
    _, known, path = (
        pathlib.Path(f'/proc/{pid}/cgroup').read_text().partition(':cpuset:/')
    )
    if not known:
        return []
    emulator = pathlib.Path('/sys/fs/cgroup/cpuset', path.partition('\n')[0])
    groups = [*emulator.parent.iterdir(), emulator.parent]
    groups = [group for group in groups if group.is_dir()]
    for group in groups:
        (group / 'cpuset.cpus').write_text(left)
    return groups


def give_to_groups(groups: list[pathlib.Path], cpus: str) -> None:
    """End :func:`take_from_groups`."""
    for group in reversed(groups):
        (group / 'cpuset.cpus').write_text(cpus)


class TestCpus(base.AgentTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.shown = self.path / f'sys{ONLINE.removeprefix("/sys")}'
        self.shown.parent.mkdir(parents=True)
        self.shown.with_name('present').write_text('0-1\n')
        self.switch('0-1')
        enter = ('nsenter', '-t', str(self.daemon.pid), '-m')
        subprocess.run(
            (*enter, 'mount', '--bind', str(self.shown), ONLINE), check=True
        )
        self.addCleanup(subprocess.run, (*enter, 'umount', ONLINE), check=True)

    def switch(self, online: str) -> None:
        """In place, as it is a mount point of libvirtd's."""
        self.shown.write_text(online + '\n')

    def pins(self, uuid: str) -> list[str] | None:
        """As the agent knows them."""
        for vm in self.status()['vms']:
            if vm['uuid'] == uuid:
                found: list[str] = vm['vcpu_pins']
                return found
        return None

    def wait_for_cpus(self, online: str) -> None:
        self.wait_for(
            lambda: self.status()['agent']['cpus'] == online,
            f'the agent to take {online}',
        )

    def sys_root(self) -> pathlib.Path:
        return self.path / 'sys'

    def test_cpu_offline_is_no_external_change_if_not_pinned(self) -> None:
        """libvirt tells other CPUs; that was not somebody's change."""
        domain = self.domain(PARALLEL)
        before = base.everything(domain)
        for choice in ('respect', 'override'):
            with self.running(
                vhpc_control__pinning_policy='none',
                foreign_changes=choice,
                sys_root=self.sys_root(),
            ):
                self.wait_for_period(domain)
                for online, pins in (('0', ['0']), ('0-1', ['0-1'])):
                    self.switch(online)
                    self.wait_for_cpus(online)
                    self.wait_for(
                        lambda pins=pins: (
                            self.pins(domain.UUIDString()) == pins * 2
                        ),
                        f'pins {pins}',
                    )
                self.switch('0')
            self.switch('0-1')
            self.assertEqual(before, base.everything(domain))
        self.assertEqual([], self.log_lines('somebody changed'))
        self.assertNotIn('<vcpupin', domain.XMLDesc(0))

    def test_pins_avoid_an_offline_cpu_and_return_to_it(self) -> None:
        domain = self.domain(PARALLEL)
        before = base.everything(domain)
        with self.running(sys_root=self.sys_root()):
            uuid = domain.UUIDString()
            self.wait_for(
                lambda: sorted(self.pins(uuid) or ()) == ['0', '1'], 'pins'
            )
            self.switch('0')
            self.wait_for_cpus('0')
            self.wait_for(
                lambda: '1' not in (self.pins(uuid) or '1'),
                'no pin to the CPU that is off',
            )
            self.switch('0-1')
            self.wait_for(
                lambda: sorted(self.pins(uuid) or ()) == ['0', '1'],
                'the pins again',
            )
        self.assertEqual(before, base.everything(domain))
        self.assertEqual([], self.log_lines('somebody changed'))
        self.assertEqual(2, len(self.log_lines('may be pinned to:')))

    def test_servers_are_restored_if_a_cgroup_lacks_a_cpu(self) -> None:
        """As cgroup v1 does it: the others are put back all the same."""
        domains = [self.domain(PARALLEL, cpuset=one) for one in (None, '0-1')]
        before = [base.everything(domain) for domain in domains]
        for how in ('stop', 'restore'):
            process = self.start_agent(sys_root=self.sys_root())
            for domain in domains:
                self.wait_for_period(domain)
                uuid = domain.UUIDString()
                self.wait_for(
                    lambda uuid=uuid: (
                        sorted(self.pins(uuid) or ()) == ['0', '1']
                    ),
                    'pins',
                )
            if how == 'restore':
                process.kill()
                process.join()
            taken = take_from_groups(domains[0], '0')
            if how == 'restore':
                self.assertEqual(0, self.restore())
            else:
                self.assertEqual(0, self.stop_agent(process))
            now = [base.everything(domain) for domain in domains]
            self.assertEqual(before[1], now[1])
            self.assertEqual(before[0][0], now[0][0])
            pin = (True, not taken)
            self.assertEqual([pin, pin], now[0][1])
            give_to_groups(taken, '0-1')
            for vcpu in range(2):
                domains[0].pinVcpuFlags(vcpu, (True, True), base.LIVE)

    def test_cpu_offline_at_agent_start_is_used_once_online(self) -> None:
        domain = self.domain(PARALLEL, cpuset='0-1')
        before = base.everything(domain)
        self.switch('0')
        with self.running(sys_root=self.sys_root(), cpu_shared_set='0-1'):
            uuid = domain.UUIDString()
            self.wait_for(lambda: self.pins(uuid) == ['0', '0'], 'pins')
            self.switch('0-1')
            self.wait_for(
                lambda: sorted(self.pins(uuid) or ()) == ['0', '1'],
                'pins to the CPU that came',
            )
        self.assertEqual(before, base.everything(domain))
        self.assertEqual(1, len(self.log_lines('are switched off;')))

    def test_cpu_offline_at_adoption_is_used_once_online(self) -> None:
        """Nova has told it of all that are to be shared."""
        domain = self.domain(PARALLEL, cpuset='0-1')
        before = base.everything(domain)
        self.switch('0')
        with self.running(sys_root=self.sys_root()):
            uuid = domain.UUIDString()
            self.wait_for(lambda: self.pins(uuid) == ['0', '0'], 'pins')
            self.switch('0-1')
            self.wait_for(
                lambda: sorted(self.pins(uuid) or ()) == ['0', '1'],
                'pins to the CPU that came',
            )
        self.assertEqual(before, base.everything(domain))


class TestAffinity(base.AgentTestCase):
    """The agent runs on fewer CPUs than guests may."""

    def test_agent_confined_at_start_and_later_pins_to_all_cpus(self) -> None:
        """As by systemd's CPUAffinity= and AllowedCPUs=."""
        domain = self.domain(PARALLEL, busy=True)
        with self.running(cpu_shared_set='0-1') as process:
            for task in os.listdir(f'/proc/{process.pid}/task'):
                os.sched_setaffinity(int(task), {0})
            looked = self.status()['agent']['ticks'] + 15
            self.wait_for(
                lambda: self.status()['agent']['ticks'] > looked,
                'the agent to look at the CPUs again',
            )
            self.assertEqual('0-1', self.status()['agent']['cpus'])
            self.wait_for(
                lambda: (
                    sorted(domain.vcpuPinInfo(base.LIVE))
                    == [(False, True), (True, False)]
                ),
                'a CPU for each vCPU',
            )
        self.assertEqual([], self.log_lines('may be pinned to:'))
