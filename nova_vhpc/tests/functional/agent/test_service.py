# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The daemon as systemd, operators and Prometheus see it."""

import contextlib
import io
import json
import os
import shutil
import signal
import socket
import stat
import urllib.request

from nova_vhpc.agent.daemon import status_socket
from nova_vhpc.cli import top
from nova_vhpc.tests.functional.agent import base
from nova_vhpc_lab.testbed.patience import PATIENCE_S

PARALLEL = {'vhpc:workload': 'parallel'}


class TestService(base.AgentTestCase):
    """Lock, signals, watchdog, metrics, status, dry run."""

    def test_second_agent_exits_with_status_2(self) -> None:
        with self.running():
            second = self.spawn()
            second.join(PATIENCE_S)
            self.assertEqual(2, second.exitcode)
            lines = self.log_lines('another nova-vhpc-agent')
            self.assertEqual(1, len(lines))
            self.assertIn('stop it first', lines[0])

    def test_second_agent_with_other_paths_exits_with_status_2(self) -> None:
        """As of a package and of a container."""
        domain = self.domain(PARALLEL)
        with self.running():
            self.wait_for_write(domain)
            ours = base.everything(domain)
            self.configure(
                state_path=self.path / 'state2', run_path=self.path / 'run2'
            )
            second = self.spawn()
            second.join(PATIENCE_S)
            self.assertEqual(2, second.exitcode)
            self.assertEqual(2, self.restore())
            lines = self.log_lines('uses the same libvirt; stop it first')
            self.assertEqual(2, len(lines))
            self.assertEqual(ours, base.everything(domain))

    def test_second_agent_exits_even_if_run_path_was_removed(self) -> None:
        domain = self.domain(PARALLEL)
        with self.running():
            self.wait_for_write(domain)
            ours = base.everything(domain)
            shutil.rmtree(self.path / 'run')
            second = self.spawn()
            second.join(PATIENCE_S)
            self.assertEqual(2, second.exitcode)
            self.assertEqual(2, self.restore())
            self.assertEqual(2, len(self.log_lines('stop it first')))
            self.assertEqual(ours, base.everything(domain))

    def test_invalid_option_ends_the_agent_with_one_line(self) -> None:
        for options, words in (
            ({'cpu_shared_set': '0-4000'}, ('cpu_shared_set', '0-4000')),
            ({'cpu_shared_set': '3-1'}, ('cpu_shared_set', '3-1')),
            ({'sync_probes': 'magic'}, ('sync_probes', 'magic')),
            ({'actuators': 'magic'}, ('actuators', 'magic')),
            ({'period_ms': '5'}, ('period_ms', '5')),
            (
                {'vhpc_control__slice_policy': 'magic'},
                ('slice_policy', 'magic', 'atc'),
            ),
        ):
            self.log.unlink(missing_ok=True)
            self.configure(**options)
            process = self.spawn()
            process.join(PATIENCE_S)
            self.assertEqual(2, process.exitcode, options)
            lines = self.log.read_text().strip().splitlines()
            line = lines[-1]
            self.assertEqual(
                1, len([x for x in lines if x.startswith('nova-vhpc-agent:')])
            )
            for word in words:
                self.assertIn(word, line)
            self.assertNotIn('Traceback', self.log.read_text())

    def test_sighup_reloads_mutable_options(self) -> None:
        domain = self.domain(PARALLEL)
        process = self.start_agent(reconcile_period=3600)
        ours = self.wait_for_period(domain)
        self.configure(reconcile_period=3600, foreign_changes='override')
        os.kill(process.pid, signal.SIGHUP)
        self.wait_for(lambda: self.log_lines('Options are reloaded'), 'SIGHUP')
        domain.setSchedulerParametersFlags({'vcpu_period': 66_000}, base.LIVE)
        self.wait_for(lambda: self.period(domain) == ours, 'our period')
        self.assertEqual(0, self.stop_agent(process))

    def test_sighup_with_a_broken_file_keeps_the_options(self) -> None:
        process = self.start_agent()
        (self.path / 'agent.conf').write_text('[vhpc_agent\nbroken')
        os.kill(process.pid, signal.SIGHUP)
        self.wait_for(lambda: self.log_lines('not reloaded'), 'SIGHUP')
        self.assertEqual(0, self.stop_agent(process))

    def test_systemd_gets_ready_watchdog_and_stopping(self) -> None:
        path = str(self.path / 'notify')
        server = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(server.close)
        server.bind(path)
        server.settimeout(20)
        self.configure()
        process = self.spawn(
            environ={'NOTIFY_SOCKET': path, 'WATCHDOG_USEC': '600000'}
        )
        self.assertEqual(b'READY=1', server.recv(100))
        for _ in range(4):
            self.assertEqual(b'WATCHDOG=1', server.recv(100))
        os.kill(process.pid, signal.SIGTERM)
        last = b''
        while last != b'STOPPING=1':
            last = server.recv(100)
        process.join(PATIENCE_S)
        self.assertEqual(0, process.exitcode)

    def test_metrics_port_serves_server_and_host_metrics(self) -> None:
        domain = self.domain(PARALLEL)
        with socket.socket() as sock:
            sock.bind(('127.0.0.1', 0))
            port = sock.getsockname()[1]
        with self.running(metrics_port=port):
            self.wait_for_write(domain)
            self.wait_for(
                lambda: self.vm(domain)['sync_latency_us'] is not None,
                'a sample',
            )
            self.assertEqual(['127.0.0.1'], listeners(port))
            with urllib.request.urlopen(
                f'http://127.0.0.1:{port}/metrics', timeout=10
            ) as answer:
                text = answer.read().decode()
        label = (
            f'{{uuid="{domain.UUIDString()}",name="{domain.name()}",'
            f'server="{domain.name()}",cluster="",project=""}} '
        )
        for name in (
            'vcpu_delay_seconds_total',
            'vcpu_run_seconds_total',
            'vcpu_throttled_seconds_total',
            'vcpu_context_switches_total',
            'vm_window_seconds_total',
            'vm_io_events_total',
            'vm_slice_seconds',
            'vm_period_seconds',
            'vm_quota_seconds',
            'vm_io_phase',
            'vm_writes_total',
            'vm_moves_total',
            'vm_failures_total',
        ):
            self.assertIn(f'nova_vhpc_{name}{label}', text)
        for name in ('run_seconds', 'context_switches'):
            line = next(
                one
                for one in text.splitlines()
                if one.startswith(f'nova_vhpc_vcpu_{name}_total{label}')
            )
            self.assertGreater(float(line.rpartition(' ')[2]), 0, line)
        for name in (
            'tick_seconds_bucket',
            'journal_bytes',
            'libvirt_up 1.0',
            'ticks_total',
        ):
            self.assertIn(f'nova_vhpc_{name}', text)

    def test_vm_that_nobody_names_makes_the_agent_unhealthy(self) -> None:
        self.domain(PARALLEL)
        self.domain({**PARALLEL, 'vhpc:cluster': 'cfd'})
        with self.running():
            self.wait_for(
                lambda: len(self.status()['vms']) == 2, 'both VMs to be found'
            )
            self.wait_for(
                lambda: (
                    not any(vm['unmeasured'] for vm in self.status()['vms'])
                ),
                'both VMs to be measured',
            )
            # A tick that has seen the VMs says which cluster they are in.
            self.wait_for(
                lambda: any(vm['cluster'] for vm in self.status()['vms']),
                'the cluster of one VM',
            )
            judged = self.status()['health']
            unhealthy = {
                name
                for name, part in judged['parts'].items()
                if not part['healthy']
            }
            self.assertEqual({'groups'}, unhealthy)
            self.assertIn('1 VMs', judged['parts']['groups']['what'])
            for vm in self.status()['vms']:
                self.assertTrue(vm['control_group'])
                self.assertGreater(vm['pid'], 0)

    def test_top_shows_the_servers_of_the_status_socket(self) -> None:
        domain = self.domain(PARALLEL)
        with self.running(status_socket_mode='0640'):
            self.wait_for_write(domain)
            path = status_socket.socket_path(str(self.path / 'run'))
            self.assertEqual(0o640, stat.S_IMODE(os.stat(path).st_mode))
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                code = top.main(
                    ['--once', '--json', '--run-path', str(self.path / 'run')]
                )
            self.assertEqual(0, code)
            document = json.loads(out.getvalue())
            self.assertEqual(
                [domain.name()], [vm['name'] for vm in document['vms']]
            )
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                code = top.main(
                    ['--once', '--run-path', str(self.path / 'run')]
                )
            self.assertEqual(0, code)
            self.assertIn(domain.name(), out.getvalue())
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            code = top.main(['--once', '--run-path', str(self.path / 'run')])
        self.assertEqual(1, code)
        self.assertIn('is nova-vhpc-agent running', err.getvalue())

    def test_dry_run_decides_and_writes_nothing(self) -> None:
        domain = self.domain(PARALLEL)
        before = domain.XMLDesc(0), base.everything(domain)
        process = self.start_agent('--dry-run')
        self.wait_for(
            lambda: (self.vm(domain) or {}).get('slice_us'), 'a decision'
        )
        self.wait_for_ticks(10)
        vm = self.vm(domain)
        self.assertNotEqual(
            vm['planned']['period_us'], vm['original']['period_us']
        )
        self.assertEqual(0, vm['writes'])
        self.assertTrue(self.status()['agent']['dry_run'])
        self.assertEqual(0, self.stop_agent(process))
        self.assertEqual(before, (domain.XMLDesc(0), base.everything(domain)))


def listeners(port: int) -> list[str]:
    """Addresses that somebody listens on at a port."""
    found = []
    with open('/proc/net/tcp') as file:
        for line in file.readlines()[1:]:
            local, state = line.split()[1], line.split()[3]
            address, _, hex_port = local.partition(':')
            if state == '0A' and int(hex_port, 16) == port:
                raw = bytes.fromhex(address)[::-1]
                found.append(socket.inet_ntoa(raw))
    return found
