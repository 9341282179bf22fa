# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""libvirt restarts, hangs, refuses writes, or does not run."""

import contextlib
import functools
import os
import pathlib
import signal
import subprocess
import threading
import time
from collections.abc import Callable

import libvirt
import libvirt_qemu

from nova_vhpc.linux import qemu_process
from nova_vhpc.tests.functional.agent import base
from nova_vhpc_lab.testbed.patience import PATIENCE_S

PARALLEL = {'vhpc:workload': 'parallel'}


class TestTrouble(base.AgentTestCase):
    """The agent waits until libvirt works again, and its tick goes on."""

    def test_agent_reconnects_when_libvirtd_restarts(self) -> None:
        domain = self.domain(PARALLEL)
        before = base.everything(domain)
        process = self.start_agent()
        self.wait_for_write(domain)
        self.daemon.restart()
        self.reconnect()
        domain = self.conn.lookupByUUIDString(domain.UUIDString())
        self.wait_for(
            lambda: self.status()['agent']['reconnects'], 'a reconnect'
        )
        self.wait_for(lambda: self.status()['agent']['libvirt_up'], 'libvirt')
        self.assertIsNotNone(self.vm(domain))
        self.assertEqual(0, self.stop_agent(process))
        self.assertEqual(before, base.everything(domain))
        self.assertEqual(1, len(self.log_lines('connection lost')))
        self.assertEqual(2, len(self.log_lines(': connected')))
        self.assertEqual([], self.log_lines('Traceback'))

    def test_reconnects_leave_no_open_files(self) -> None:
        process = self.start_agent()
        self.wait_for(lambda: self.status()['agent']['libvirt_up'], 'libvirt')
        files = pathlib.Path(f'/proc/{process.pid}/fd')
        before = len(list(files.iterdir()))
        for times in (1, 2, 3):
            self.daemon.restart()
            self.wait_for(
                lambda times=times: (
                    self.status()['agent']['reconnects'] == times
                    and self.status()['agent']['libvirt_up']
                ),
                'a reconnect',
            )
        self.reconnect()
        self.wait_for(
            lambda: len(list(files.iterdir())) <= before,
            'the old connections to end',
        )

    def test_agent_waits_for_a_libvirtd_that_is_down_at_start(self) -> None:
        domain = self.domain(PARALLEL)
        self.daemon.kill()
        process = self.start_agent(reconnect_max_seconds=0.5)
        self.wait_for_ticks(30)
        self.assertFalse(self.status()['agent']['libvirt_up'])
        self.assertEqual(1, len(self.log_lines('not reachable')))
        self.daemon.start()
        self.reconnect()
        domain = self.conn.lookupByUUIDString(domain.UUIDString())
        self.wait_for_write(domain)
        self.assertEqual(0, self.stop_agent(process))
        self.assertEqual([], self.log_lines('Traceback'))

    def test_stop_while_libvirtd_is_down_keeps_the_journal(self) -> None:
        domain = self.domain(PARALLEL)
        before = base.everything(domain)
        process = self.start_agent()
        self.wait_for_write(domain)
        self.daemon.kill()
        self.wait_for(
            lambda: not self.status()['agent']['libvirt_up'], 'the loss'
        )
        began = time.monotonic()
        self.assertEqual(1, self.stop_agent(process))
        self.assertLess(time.monotonic() - began, 6.0)
        self.daemon.start()
        self.reconnect()
        domain = self.conn.lookupByUUIDString(domain.UUIDString())
        self.assertEqual(0, self.restore())
        self.assertEqual(before, base.everything(domain))

    def test_stop_while_libvirtd_restarts_restores_the_server(self) -> None:
        """A package upgrade restarts both."""
        domain = self.domain(PARALLEL)
        before = base.everything(domain)
        process = self.start_agent()
        self.wait_for_write(domain)
        self.daemon.kill()
        self.wait_for(
            lambda: not self.status()['agent']['libvirt_up'], 'the loss'
        )
        back = threading.Timer(0.5, self.daemon.start)
        back.start()
        self.assertEqual(0, self.stop_agent(process))
        back.join()
        self.reconnect()
        domain = self.conn.lookupByUUIDString(domain.UUIDString())
        self.assertEqual(before, base.everything(domain))

    def test_frozen_libvirtd_does_not_stop_the_tick(self) -> None:
        domain = self.domain(PARALLEL)
        process = self.start_agent(call_deadline=0.5)
        self.wait_for_write(domain)
        with self.daemon.frozen():
            self.wait_for_ticks(10)
        self.wait_for(
            lambda: (
                self.status()['agent']['libvirt_up']
                and not (self.vm(domain) or {'quarantined': True})[
                    'quarantined'
                ]
            ),
            'libvirt',
        )
        self.assertEqual(0, self.stop_agent(process))

    def hang(self, domain: libvirt.virDomain) -> Callable[[], None]:
        """Make libvirt's calls on one domain hang.

        :returns: function that ends the hang.
        """
        pid = int(
            (self.daemon.run_dir / 'qemu' / f'{domain.name()}.pid')
            .read_text()
            .strip()
        )
        os.kill(pid, signal.SIGSTOP)
        # A monitor command to the stopped QEMU holds the domain's job.
        other = libvirt.open(self.daemon.uri)
        holder = threading.Thread(
            target=ask_monitor, args=(other, domain.UUIDString())
        )
        holder.start()
        time.sleep(0.3)

        def end_hang() -> None:
            os.kill(pid, signal.SIGCONT)
            holder.join(PATIENCE_S)
            with contextlib.suppress(libvirt.libvirtError):
                other.close()

        self.addCleanup(end_hang)
        return end_hang

    def test_hanging_domain_does_not_delay_other_servers(self) -> None:
        hanging = self.domain(PARALLEL)
        before = base.everything(hanging)
        end_hang = self.hang(hanging)
        process = self.start_agent(
            call_deadline=0.5, quarantine_seconds=0.5, reconcile_period=0.5
        )
        # Since version 10, libvirt does not return the XML of such a domain,
        # so the agent cannot know whether to manage it.
        self.wait_for(
            lambda: (
                (self.vm(hanging) or {}).get('quarantined')
                or hanging.UUIDString()
                in self.status()['agent'].get('refused', ())
            ),
            'the quarantine',
        )
        self.assertGreater(self.status()['agent']['late_calls'], 0)
        free = self.domain(PARALLEL)
        self.wait_for_write(free)
        self.wait_for_ticks(5)
        end_hang()
        self.wait_for_write(hanging)
        self.wait_for(
            lambda: not self.vm(hanging)['quarantined'], 'the way back'
        )
        self.assertEqual(0, self.stop_agent(process))
        self.assertEqual(before, base.everything(hanging))

    def test_stop_restores_other_servers_if_one_hangs(self) -> None:
        hanging = self.domain(PARALLEL)
        others = [self.domain(PARALLEL) for _ in range(3)]
        before = [base.everything(d) for d in (hanging, *others)]
        process = self.start_agent(workers=2, call_deadline=1)
        for domain in (hanging, *others):
            self.wait_for_write(domain)
        end_hang = self.hang(hanging)
        began = time.monotonic()
        self.assertEqual(1, self.stop_agent(process))
        self.assertLess(time.monotonic() - began, 6.0)
        left = {p.stem for p in (self.path / 'state/journal').iterdir()}
        self.assertIn(hanging.UUIDString(), left)
        for domain, original in zip(others, before[1:], strict=True):
            # On a machine under load the time may not suffice for all
            # servers; a server without a record must be restored exactly.
            if domain.UUIDString() not in left:
                self.assertEqual(original, base.everything(domain))
        end_hang()
        self.assertEqual(0, self.restore())
        self.assertEqual(
            before, [base.everything(d) for d in (hanging, *others)]
        )

    def make_bandwidth_read_only(self, domain: libvirt.virDomain) -> None:
        """Make the kernel refuse libvirt's writes of period and quota."""
        run = functools.partial(subprocess.run, check=True)
        host = qemu_process.Processes()
        pid = host.find(domain.UUIDString())
        enter = ['nsenter', '-t', str(self.daemon.pid), '-m']
        for group in host.vcpu_cgroups(pid, range(2)):
            for name in ('cpu.max', 'cpu.cfs_period_us', 'cpu.cfs_quota_us'):
                file = str(group / name)
                if os.path.exists(file):
                    run([*enter, 'mount', '--bind', file, file])
                    self.addCleanup(run, [*enter, 'umount', file])
                    run([*enter, 'mount', '-o', 'remount,bind,ro', file])

    def test_server_with_refused_writes_is_quarantined_and_retried(
        self,
    ) -> None:
        domain = self.domain(PARALLEL)
        # Started before the mounts, which libvirt would otherwise take for
        # cgroup controllers.
        fine = self.domain(PARALLEL)
        self.make_bandwidth_read_only(domain)
        before = base.everything(domain)
        process = self.start_agent(
            quarantine_failures=2, quarantine_seconds=0.3
        )
        self.wait_for_write(fine)
        vm = self.wait_for(
            lambda: (
                (self.vm(domain) or {}).get('failures', 0) > 3
                and self.vm(domain)
            ),
            'failures, quarantine and retries',
        )
        self.assertTrue(vm['problem'])
        self.assertGreaterEqual(len(self.log_lines('in quarantine')), 1)
        self.assertEqual(0, self.stop_agent(process))
        self.assertEqual(before, base.everything(domain))


def ask_monitor(conn: libvirt.virConnect, uuid: str) -> None:
    """Send a monitor command, which blocks while QEMU is stopped."""
    try:
        domain = conn.lookupByUUIDString(uuid)
        libvirt_qemu.qemuMonitorCommand(domain, 'info version', 1)
    except libvirt.libvirtError:
        pass
