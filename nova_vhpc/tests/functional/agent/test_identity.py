# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Which process is a VM's QEMU: libvirt's, whatever it is called."""

import json
import os
import pathlib
import subprocess

import libvirt

from nova_vhpc.tests.functional.agent import base

PARALLEL = {'vhpc:workload': 'parallel'}
NOBODY = 65534


class TestIdentity(base.AgentTestCase):
    def pid(self, domain: libvirt.virDomain) -> int:
        """Return the process ID of a domain's QEMU, as libvirt has it."""
        file = self.daemon.run_dir / 'qemu' / f'{domain.name()}.pid'
        return int(file.read_text())

    def start_impostor(self, domain: libvirt.virDomain) -> None:
        """Have an ordinary user start what looks like a domain's QEMU."""
        script = 'echo; read line'
        process = subprocess.Popen(
            ['qemu-kvm', '-c', script, '-uuid', domain.UUIDString()],
            executable='/bin/sh',
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            cwd='/',
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        assert process.stdout is not None
        process.stdout.readline()

    def recorded_pid(self, domain: libvirt.virDomain) -> int:
        """Return the process ID in the journal."""
        name = f'state/journal/{domain.UUIDString()}.json'
        record = json.loads((self.path / name).read_text())
        pid: int = record.get('record', record)['identity']['pid']
        return pid

    def wait_for_run_time(self, domain: libvirt.virDomain) -> None:
        """Wait until the agent sees a domain run."""
        self.wait_for(
            lambda: (self.vm(domain) or {}).get('run_us'),
            f'CPU time of {domain.name()}',
        )

    def test_impostor_takes_no_place_of_a_vm(self) -> None:
        domain = self.domain(PARALLEL, busy=True)
        before = base.everything(domain)
        self.start_impostor(domain)
        agent = self.start_agent()
        self.wait_for_period(domain)
        self.assertEqual(self.pid(domain), self.recorded_pid(domain))
        self.start_impostor(domain)
        # The agent looks for processes again.
        self.wait_for_write(self.domain(PARALLEL))
        self.wait_for_run_time(domain)
        self.assertEqual(self.pid(domain), self.recorded_pid(domain))
        agent.kill()
        agent.join()
        self.assertEqual(0, self.restore())
        self.assertEqual(before, base.everything(domain))

    def test_impostor_of_a_vm_that_ended_leaves_nothing_to_restore(
        self,
    ) -> None:
        domain = self.domain(PARALLEL)
        self.start_impostor(domain)
        agent = self.start_agent()
        self.wait_for_write(domain)
        agent.kill()
        agent.join()
        domain.destroy()
        self.assertEqual(0, self.restore())
        self.assertEqual([], os.listdir(self.path / 'state/journal'))
        domain.create()
        agent = self.start_agent()
        self.wait_for_write(domain)
        domain.destroy()
        self.assertEqual(0, self.stop_agent(agent))

    def test_vm_of_an_emulator_of_another_name_is_measured(self) -> None:
        emulator = self.path / 'kvm'
        emulator.symlink_to('/usr/bin/qemu-system-x86_64')
        domain = self.domain(PARALLEL, busy=True, emulator=str(emulator))
        with self.running():
            self.wait_for_period(domain)
            self.wait_for_run_time(domain)
            self.assertEqual(self.pid(domain), self.recorded_pid(domain))

    def test_vm_without_pid_file_is_measured(self) -> None:
        domain = self.domain(PARALLEL, busy=True)
        pid = self.pid(domain)
        pathlib.Path(
            self.daemon.run_dir, 'qemu', f'{domain.name()}.pid'
        ).unlink()
        with self.running():
            self.wait_for_period(domain)
            self.wait_for_run_time(domain)
            self.assertEqual(pid, self.recorded_pid(domain))
