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

"""libvirt that restarts, hangs, refuses or is not there."""

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

PARALLEL = {'vhpc:workload': 'parallel'}


class TestTrouble(base.AgentTestCase):
    """The agent waits it out, and the tick goes on."""

    def ticks(self) -> int:
        """Number of ticks so far."""
        value: int = self.status()['agent']['ticks']
        return value

    def test_restart_of_libvirtd(self) -> None:
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

    def test_restarts_of_libvirtd_leave_nothing_behind(self) -> None:
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

    def test_libvirtd_away_at_start_and_for_long(self) -> None:
        domain = self.domain(PARALLEL)
        self.daemon.kill()
        process = self.start_agent(reconnect_max_seconds=0.5)
        time.sleep(3)
        self.assertFalse(self.status()['agent']['libvirt_up'])
        self.assertEqual(1, len(self.log_lines('not reachable')))
        self.daemon.start()
        self.reconnect()
        domain = self.conn.lookupByUUIDString(domain.UUIDString())
        self.wait_for_write(domain)
        self.assertEqual(0, self.stop_agent(process))
        self.assertEqual([], self.log_lines('Traceback'))

    def test_stop_while_libvirtd_is_away_keeps_the_journal(self) -> None:
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

    def test_stop_while_libvirtd_is_restarted(self) -> None:
        """As an upgrade of both does."""
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
            first = self.ticks()
            time.sleep(2)
            self.assertGreater(self.ticks() - first, 10)
        self.wait_for(
            lambda: (
                self.status()['agent']['libvirt_up']
                and not (self.vm(domain) or {'quarantined': True})[
                    'quarantined'
                ]
            ),
            'libvirt',
            60,
        )
        self.assertEqual(0, self.stop_agent(process))

    def hang(self, domain: libvirt.virDomain) -> Callable[[], None]:
        """Make libvirt's calls on one domain hang; returns the cure."""
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

        def cure() -> None:
            os.kill(pid, signal.SIGCONT)
            holder.join(30)
            with contextlib.suppress(libvirt.libvirtError):
                other.close()

        self.addCleanup(cure)
        return cure

    def test_one_domain_that_hangs_does_not_stop_the_others(self) -> None:
        hanging = self.domain(PARALLEL)
        before = base.everything(hanging)
        cure = self.hang(hanging)
        process = self.start_agent(
            call_deadline=0.5, quarantine_seconds=0.5, reconcile_period=0.5
        )
        # libvirt from 10 on does not even give the XML of such a domain, so
        # whether it is ours cannot be known.
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
        first = self.ticks()
        time.sleep(1)
        self.assertGreater(self.ticks() - first, 5)
        cure()
        self.wait_for_write(hanging)
        self.wait_for(
            lambda: not self.vm(hanging)['quarantined'], 'the way back'
        )
        self.assertEqual(0, self.stop_agent(process))
        self.assertEqual(before, base.everything(hanging))

    def test_stop_beside_a_domain_that_hangs(self) -> None:
        hanging = self.domain(PARALLEL)
        others = [self.domain(PARALLEL) for _ in range(3)]
        before = [base.everything(d) for d in (hanging, *others)]
        process = self.start_agent(workers=2, call_deadline=1)
        for domain in (hanging, *others):
            self.wait_for_write(domain)
        cure = self.hang(hanging)
        began = time.monotonic()
        self.assertEqual(1, self.stop_agent(process))
        self.assertLess(time.monotonic() - began, 6.0)
        left = {p.stem for p in (self.path / 'state/journal').iterdir()}
        self.assertIn(hanging.UUIDString(), left)
        for domain, original in zip(others, before[1:], strict=True):
            # A machine under load may not get round to all in time; but
            # who is not in the journal any more is exactly what it was.
            if domain.UUIDString() not in left:
                self.assertEqual(original, base.everything(domain))
        cure()
        self.assertEqual(0, self.restore())
        self.assertEqual(
            before, [base.everything(d) for d in (hanging, *others)]
        )

    def make_bandwidth_read_only(self, domain: libvirt.virDomain) -> None:
        """Let the kernel refuse libvirt a domain's period and quota."""
        run = functools.partial(subprocess.run, check=True)
        host = qemu_process.Processes()
        pid = host.find(domain.UUIDString())
        enter = ['nsenter', '-t', str(self.daemon.pid), '-m']
        for group in host.vcpu_cgroups(pid, 2):
            for name in ('cpu.max', 'cpu.cfs_period_us', 'cpu.cfs_quota_us'):
                file = str(group / name)
                if os.path.exists(file):
                    run([*enter, 'mount', '--bind', file, file])
                    self.addCleanup(run, [*enter, 'umount', file])
                    run([*enter, 'mount', '-o', 'remount,bind,ro', file])

    def test_refused_writes_bring_quarantine_and_retries(self) -> None:
        domain = self.domain(PARALLEL)
        # Before the mounts: libvirt takes them for controllers of its own.
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
    """Block in a monitor command for as long as QEMU is stopped."""
    try:
        domain = conn.lookupByUUIDString(uuid)
        libvirt_qemu.qemuMonitorCommand(domain, 'info version', 1)
    except libvirt.libvirtError:
        pass
