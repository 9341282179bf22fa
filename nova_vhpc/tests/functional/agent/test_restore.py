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

"""Exact undo: on stop, after a crash, with a broken journal."""

import json
import os
import random
import signal
import time

import libvirt

from nova_vhpc.agent.journal import domain_metadata
from nova_vhpc.tests.functional.agent import base

PARALLEL = {'vhpc:workload': 'parallel'}


class TestUndo(base.AgentTestCase):
    """What the agent wrote is taken back, bit for bit."""

    def test_stop_restores_all(self) -> None:
        domains = [
            self.domain(PARALLEL),
            self.domain(PARALLEL, cputune=base.OWN_QUOTA),
            self.domain({'vhpc:workload': 'latency'}),
        ]
        before = [base.everything(domain) for domain in domains]
        with self.running():
            for domain in domains[:2]:
                self.wait_for_write(domain)
            self.assertNotEqual(before[0], base.everything(domains[0]))
            self.assertNotEqual(before[1], base.everything(domains[1]))
            self.assertEqual(
                {d.UUIDString() for d in domains[:2]},
                {p.stem for p in (self.path / 'state/journal').glob('*.json')}
                & {d.UUIDString() for d in domains[:2]},
            )
        self.assertEqual(before, [base.everything(d) for d in domains])
        self.assertEqual([], list((self.path / 'state/journal').iterdir()))
        for domain in domains:
            self.assertNotIn(domain_metadata.URI, domain.XMLDesc(0))

    def test_vcpus_that_were_plugged_in_meanwhile(self) -> None:
        domain = self.domain(PARALLEL, spare_vcpus=2)
        everywhere = domain.vcpuPinInfo(base.LIVE)[0]
        with self.running(vhpc_control__pinning_policy='balance'):
            self.wait_for_write(domain)
            domain.setVcpusFlags(4, base.LIVE)
            self.wait_for(
                lambda: everywhere not in domain.vcpuPinInfo(base.LIVE),
                'all vCPUs to be pinned',
            )
        self.assertEqual([everywhere] * 4, domain.vcpuPinInfo(base.LIVE))

    def test_stop_within_five_seconds(self) -> None:
        domains = [self.domain(PARALLEL) for _ in range(4)]
        process = self.start_agent()
        for domain in domains:
            self.wait_for_write(domain)
        began = time.monotonic()
        self.assertEqual(0, self.stop_agent(process))
        self.assertLess(time.monotonic() - began, 5.0)

    def test_next_start_after_a_kill_starts_from_the_original(self) -> None:
        domain = self.domain(PARALLEL, cputune=base.OWN_QUOTA)
        before = base.everything(domain)
        process = self.start_agent()
        self.wait_for_write(domain)
        process.kill()
        process.join(10)
        with self.running():
            self.wait_for_write(domain)
            vm = self.vm(domain)
            self.assertEqual(50_000, vm['original']['period_us'])
            self.assertEqual(20_000, vm['original']['quota_us'])
        self.assertEqual(before, base.everything(domain))

    def _killed(self, domain: libvirt.virDomain) -> object:
        """An agent wrote to the domain and was killed; its journal file."""
        process = self.start_agent()
        self.wait_for_write(domain)
        process.kill()
        process.join(10)
        return self.path / 'state/journal' / f'{domain.UUIDString()}.json'

    def test_torn_journal_is_replaced_by_the_mark(self) -> None:
        domain = self.domain(PARALLEL, cputune=base.OWN_QUOTA)
        before = base.everything(domain)
        file = self._killed(domain)
        file.write_text(file.read_text()[:100])
        self.assertEqual(0, self.restore())
        self.assertEqual(before, base.everything(domain))
        self.assertTrue(file.with_suffix('.bad').exists())

    def test_empty_journal_without_mark_falls_back_to_definition(
        self,
    ) -> None:
        domain = self.domain(PARALLEL, cputune=base.OWN_QUOTA)
        before = base.everything(domain)
        file = self._killed(domain)
        file.write_text('')
        domain_metadata.remove(domain)
        self.assertEqual(0, self.restore())
        self.assertEqual(before, base.everything(domain))

    def test_altered_journal_is_replaced_by_the_mark(self) -> None:
        domain = self.domain(PARALLEL, cputune=base.OWN_QUOTA)
        before = base.everything(domain)
        file = self._killed(domain)
        text = file.read_text()
        shares = before[0]['cpu_shares']
        altered = text.replace(f': {shares}', f': {shares + 1}')
        self.assertNotEqual(text, altered)
        file.write_text(altered)
        self.assertEqual(0, self.restore())
        self.assertEqual(before, base.everything(domain))
        self.assertEqual(altered, file.with_suffix('.bad').read_text())

    def test_lost_journal_is_replaced_by_the_mark(self) -> None:
        domain = self.domain(PARALLEL)
        before = base.everything(domain)
        self._killed(domain).unlink()
        self.assertEqual(0, self.restore())
        self.assertEqual(before, base.everything(domain))
        self.assertNotIn(domain_metadata.URI, domain.XMLDesc(0))

    def test_newer_journal_is_kept_and_the_vm_freed(self) -> None:
        domain = self.domain(PARALLEL)
        before = base.everything(domain)
        file = self._killed(domain)
        data = json.loads(file.read_text())
        data['version'] = 99
        file.write_text(json.dumps(data))
        with self.running():
            self.wait_for(
                lambda: base.everything(domain) == before, 'the restore'
            )
            self.wait_for(
                lambda: self.status()['agent']['refused'], 'the refusal'
            )
            self.assertIsNone(self.vm(domain))
        self.assertTrue(file.exists())

    def test_journal_of_a_domain_that_is_gone(self) -> None:
        domain = self.domain(PARALLEL)
        file = self._killed(domain)
        domain.destroy()
        self.assertEqual(0, self.restore())
        self.assertFalse(file.exists())

    def test_journal_of_another_run_is_not_believed(self) -> None:
        domain = self.domain(PARALLEL)
        file = self._killed(domain)
        kept = file.read_text()
        domain.destroy()
        domain.create()
        # Somebody's own choice in the new run must stay.
        domain.setSchedulerParametersFlags({'cpu_shares': 777}, base.LIVE)
        before = base.everything(domain)
        file.write_text(kept)
        self.assertEqual(0, self.restore())
        self.assertEqual(before, base.everything(domain))
        self.assertFalse(file.exists())

    def test_no_journal_no_write(self) -> None:
        domain = self.domain(PARALLEL)
        before = base.everything(domain)
        state = self.path / 'state'
        # Root writes through file modes; a file in the way stops it.
        state.write_text('in the way')
        process = self.start_agent()
        self.wait_for(
            lambda: (self.vm(domain) or {}).get('failures'), 'the refusal'
        )
        self.assertEqual(before, base.everything(domain))
        self.assertNotIn(domain_metadata.URI, domain.XMLDesc(0))
        state.unlink()
        self.stop_agent(process)

    def test_full_disk_no_write_and_recovery(self) -> None:
        domain = self.domain(PARALLEL)
        before = base.everything(domain)
        state = self.path / 'state'
        state.mkdir()
        full = state / 'journal'
        full.mkdir()
        self.mount_tiny(full)
        filler = full / 'filler'
        fill(filler)
        process = self.start_agent(quarantine_seconds=0.5)
        self.wait_for(
            lambda: (self.vm(domain) or {}).get('failures'), 'the refusal'
        )
        self.assertEqual(before, base.everything(domain))
        filler.unlink()
        self.wait_for_write(domain)
        self.assertEqual(0, self.stop_agent(process))
        self.assertEqual(before, base.everything(domain))

    def mount_tiny(self, path: object) -> None:
        """A file system of one page for files."""
        import subprocess

        subprocess.run(
            [
                'mount',
                '-t',
                'tmpfs',
                '-o',
                'size=64k,nr_inodes=64',
                'tmpfs',
                str(path),
            ],
            check=True,
        )
        self.addCleanup(subprocess.run, ['umount', '-l', str(path)])

    def test_restore_refuses_beside_a_running_agent(self) -> None:
        with self.running():
            self.assertEqual(2, self.restore())

    def test_restore_with_the_wrong_libvirt_keeps_the_journal(self) -> None:
        domain = self.domain(PARALLEL)
        file = self._killed(domain)
        self.configure(libvirt_uri='test:///default')
        self.assertEqual(1, self.restore())
        self.assertTrue(file.exists())
        self.configure()
        self.assertEqual(0, self.restore())

    def test_managed_save_carries_the_original(self) -> None:
        domain = self.domain(PARALLEL, cputune=base.OWN_QUOTA)
        before = base.everything(domain)
        with self.running():
            self.wait_for_write(domain)
            domain.managedSave(0)
            self.wait_for(lambda: self.vm(domain) is None, 'it to be gone')
            domain.create()
            self.wait_for_write(domain)
            self.assertEqual(50_000, self.vm(domain)['original']['period_us'])
        self.assertEqual(before[0], base.everything(domain)[0])
        self.assertEqual(before[1], base.everything(domain)[1])

    def test_killed_while_stopping_leaves_it_to_restore(self) -> None:
        domains = [self.domain(PARALLEL) for _ in range(3)]
        before = [base.everything(domain) for domain in domains]
        process = self.start_agent()
        for domain in domains:
            self.wait_for_write(domain)
        os.kill(process.pid, signal.SIGTERM)
        time.sleep(random.uniform(0, 0.05))
        process.kill()
        process.join(10)
        self.assertEqual(0, self.restore())
        self.assertEqual(before, [base.everything(d) for d in domains])


def fill(path: object) -> None:
    """Write until the disk is full."""
    with open(str(path), 'wb', buffering=0) as file:
        try:
            while True:
                file.write(b'x' * 4096)
        except OSError:
            pass
