# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Exact restore: at stop, after a crash, with a damaged journal."""

import json
import os
import random
import signal
import time

import libvirt

from nova_vhpc.agent.journal import store
from nova_vhpc.tests.functional.agent import base
from nova_vhpc_lab.testbed.patience import PATIENCE_S

PARALLEL = {'vhpc:workload': 'parallel'}


class TestRestore(base.AgentTestCase):
    """Servers get their original settings back, every value the same."""

    def test_stop_restores_all_servers(self) -> None:
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
            self.assertNotIn(store.METADATA_URI, domain.XMLDesc(0))

    def test_stop_restores_pins_of_hotplugged_vcpus(self) -> None:
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

    def test_guest_with_a_gap_in_its_vcpus_is_held(self) -> None:
        domain = self.domain(PARALLEL, spare_vcpus=2)
        everywhere = domain.vcpuPinInfo(base.LIVE)[0]
        before = base.everything(domain)[0]
        with self.running(vhpc_control__pinning_policy='balance'):
            self.wait_for_write(domain)
            domain.setVcpu('3', 1, base.LIVE)
            self.wait_for(
                lambda: (
                    (vm := self.vm(domain))['hands_off'] == 'vcpu gap'
                    and not vm['journalled']
                ),
                'the guest to be restored',
            )
            self.assertEqual(before, base.everything(domain)[0])
            self.assertEqual([everywhere] * 3, domain.vcpuPinInfo(base.LIVE))
            (line,) = self.log_lines('vCPUs between others are off')
            self.assertIn('online are 0-1,3.', line)
            self.wait_for(
                lambda: self.vm(domain)['sync_latency_us'] is not None,
                'the latency of all online vCPUs',
            )
            domain.setVcpu('2', 1, base.LIVE)
            self.wait_for(
                lambda: everywhere not in domain.vcpuPinInfo(base.LIVE),
                'all vCPUs to be pinned',
            )
        self.assertEqual([everywhere] * 4, domain.vcpuPinInfo(base.LIVE))

    def test_stop_takes_less_than_five_seconds(self) -> None:
        domains = [self.domain(PARALLEL) for _ in range(4)]
        process = self.start_agent()
        for domain in domains:
            self.wait_for_write(domain)
        began = time.monotonic()
        self.assertEqual(0, self.stop_agent(process))
        self.assertLess(time.monotonic() - began, 5.0)

    def test_agent_after_a_kill_knows_the_original(self) -> None:
        domain = self.domain(PARALLEL, cputune=base.OWN_QUOTA)
        before = base.everything(domain)
        process = self.start_agent()
        self.wait_for_write(domain)
        process.kill()
        process.join(PATIENCE_S)
        with self.running():
            self.wait_for_write(domain)
            vm = self.vm(domain)
            self.assertEqual(50_000, vm['original']['period_us'])
            self.assertEqual(20_000, vm['original']['quota_us'])
        self.assertEqual(before, base.everything(domain))

    def write_and_kill(self, domain: libvirt.virDomain) -> object:
        """Have an agent write to a domain, and kill it.

        :returns: path of the domain's journal record.
        """
        process = self.start_agent()
        self.wait_for_write(domain)
        process.kill()
        process.join(PATIENCE_S)
        return self.path / 'state/journal' / f'{domain.UUIDString()}.json'

    def test_truncated_record_is_replaced_by_the_metadata_copy(self) -> None:
        domain = self.domain(PARALLEL, cputune=base.OWN_QUOTA)
        before = base.everything(domain)
        file = self.write_and_kill(domain)
        file.write_text(file.read_text()[:100])
        self.assertEqual(0, self.restore())
        self.assertEqual(before, base.everything(domain))
        self.assertTrue(file.with_suffix('.bad').exists())

    def test_definition_replaces_empty_record_without_metadata(
        self,
    ) -> None:
        domain = self.domain(PARALLEL, cputune=base.OWN_QUOTA)
        before = base.everything(domain)
        file = self.write_and_kill(domain)
        file.write_text('')
        store.remove_metadata(domain)
        self.assertEqual(0, self.restore())
        self.assertEqual(before, base.everything(domain))

    def test_altered_record_is_replaced_by_the_metadata_copy(self) -> None:
        domain = self.domain(PARALLEL, cputune=base.OWN_QUOTA)
        before = base.everything(domain)
        file = self.write_and_kill(domain)
        text = file.read_text()
        shares = before[0]['cpu_shares']
        altered = text.replace(f': {shares}', f': {shares + 1}')
        self.assertNotEqual(text, altered)
        file.write_text(altered)
        self.assertEqual(0, self.restore())
        self.assertEqual(before, base.everything(domain))
        self.assertEqual(altered, file.with_suffix('.bad').read_text())

    def test_lost_record_is_replaced_by_the_metadata_copy(self) -> None:
        domain = self.domain(PARALLEL)
        before = base.everything(domain)
        self.write_and_kill(domain).unlink()
        self.assertEqual(0, self.restore())
        self.assertEqual(before, base.everything(domain))
        self.assertNotIn(store.METADATA_URI, domain.XMLDesc(0))

    def test_record_of_newer_version_is_kept_and_server_restored(self) -> None:
        domain = self.domain(PARALLEL)
        before = base.everything(domain)
        file = self.write_and_kill(domain)
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

    def test_record_of_a_domain_that_is_gone_is_removed(self) -> None:
        domain = self.domain(PARALLEL)
        file = self.write_and_kill(domain)
        domain.destroy()
        self.assertEqual(0, self.restore())
        self.assertFalse(file.exists())

    def test_record_of_an_earlier_run_is_not_restored(self) -> None:
        domain = self.domain(PARALLEL)
        file = self.write_and_kill(domain)
        kept = file.read_text()
        domain.destroy()
        domain.create()
        # An external change in the new run must stay.
        domain.setSchedulerParametersFlags({'cpu_shares': 777}, base.LIVE)
        before = base.everything(domain)
        file.write_text(kept)
        self.assertEqual(0, self.restore())
        self.assertEqual(before, base.everything(domain))
        self.assertFalse(file.exists())

    def test_nothing_is_written_without_a_journal(self) -> None:
        domain = self.domain(PARALLEL)
        before = base.everything(domain)
        state = self.path / 'state'
        # Root ignores file modes, but a file in the way stops it, too.
        state.write_text('in the way')
        process = self.start_agent()
        self.wait_for(
            lambda: (self.vm(domain) or {}).get('failures'), 'the refusal'
        )
        self.assertEqual(before, base.everything(domain))
        self.assertNotIn(store.METADATA_URI, domain.XMLDesc(0))
        state.unlink()
        self.stop_agent(process)

    def test_nothing_is_written_until_the_disk_has_space(self) -> None:
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
        """Mount a file system of 64 KiB."""
        import subprocess

        subprocess.run(
            [
                'mount',
                '-t',
                'tmpfs',
                '-o',
                'size=64k,nr_inodes=64,mode=0700',
                'tmpfs',
                str(path),
            ],
            check=True,
        )
        self.addCleanup(subprocess.run, ['umount', '-l', str(path)])

    def test_restore_exits_with_status_2_while_an_agent_runs(self) -> None:
        with self.running():
            self.assertEqual(2, self.restore())

    def test_restore_from_another_libvirt_keeps_the_record(self) -> None:
        domain = self.domain(PARALLEL)
        file = self.write_and_kill(domain)
        self.configure(libvirt_uri='test:///default')
        self.assertEqual(1, self.restore())
        self.assertTrue(file.exists())
        self.configure()
        self.assertEqual(0, self.restore())

    def test_saved_and_started_server_keeps_its_original(self) -> None:
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

    def test_restore_completes_a_stop_that_was_killed(self) -> None:
        domains = [self.domain(PARALLEL) for _ in range(3)]
        before = [base.everything(domain) for domain in domains]
        process = self.start_agent()
        for domain in domains:
            self.wait_for_write(domain)
        os.kill(process.pid, signal.SIGTERM)
        time.sleep(random.uniform(0, 0.05))
        process.kill()
        process.join(PATIENCE_S)
        self.assertEqual(0, self.restore())
        self.assertEqual(before, [base.everything(d) for d in domains])

    def test_journal_of_a_backup_gives_way_to_the_metadata(self) -> None:
        server = self.domain(PARALLEL)
        before = base.everything(server)
        journal = self.path / 'state/journal'
        file = journal / f'{server.UUIDString()}.json'
        with self.running():
            self.wait_for_write(server)
            backup = file.read_bytes()
        self.assertEqual(before, base.everything(server))
        # The next agent journals anew what it writes, and more of it.
        agent = self.start_agent()
        self.wait_for_write(server)
        agent.kill()
        agent.join()
        file.write_bytes(backup)
        self.assertEqual(0, self.restore())
        self.assertEqual(before, base.everything(server))
        self.assertEqual([], list(journal.iterdir()))
        self.assertEqual(1, len(self.log_lines('older than the copy')))


def fill(path: object) -> None:
    """Write to a file until the disk is full."""
    with open(str(path), 'wb', buffering=0) as file:
        try:
            while True:
                file.write(b'x' * 4096)
        except OSError:
            pass
