# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Gang windows: weights that change several times a second."""

import fcntl
import os
import pathlib
import random
import select
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import libvirt

from nova_vhpc.agent.libvirt import connection
from nova_vhpc.linux import cgroup, qemu_process
from nova_vhpc.tests.functional.agent import base
from nova_vhpc_lab.testbed.patience import PATIENCE_S

PARALLEL = {'vhpc:workload': 'parallel'}


class TestWindows(base.AgentTestCase):
    """Two busy VMs that share all CPUs take turns."""

    def setUp(self) -> None:
        super().setUp()
        self.domains = [self.domain(PARALLEL, busy=True) for _ in range(2)]
        self.before = self.everything()

    def everything(self) -> list[Any]:
        """All of both VMs' cputune, affinities and idleness."""
        return [
            (*base.everything(domain), base.in_kernel(domain))
            for domain in self.domains
        ]

    def start_windows(self, **options: Any) -> Any:
        """An agent that plays them."""
        process = self.start_agent(
            vhpc_control__slice_policy='gang', **options
        )
        self.wait_for(
            lambda: self.status().get('windows', {}).get('writes'),
            'windows',
        )
        return process

    def shares(self, domain: libvirt.virDomain) -> int:
        """Its weight in force."""
        value: int = domain.schedulerParametersFlags(base.LIVE)['cpu_shares']
        return value

    def wait_for_windows(self, domain: libvirt.virDomain) -> None:
        """Until two windows have weighed it."""
        seen: set[int] = set()
        self.wait_for(
            lambda: (
                seen.add(self.shares(domain))
                or len(seen - {self.before[0][0]['cpu_shares']}) > 1
            ),
            'two weights',
        )

    def is_accepted(self, write: Callable[..., Any], *arguments: Any) -> bool:
        """Write; return whether the kernel took it, as it does from idle."""
        try:
            write(*arguments)
        except (OSError, libvirt.libvirtError):
            return False
        return True

    def weight_file(self, domain: libvirt.virDomain) -> pathlib.Path:
        """The file that its weight stands in."""
        host = qemu_process.Processes()
        pid = host.find(domain.UUIDString())
        path = host.weight_file(pid, pid)
        assert path is not None
        return path

    def test_weights_are_restored_at_stop(self) -> None:
        process = self.start_windows()
        # Our own writes must not be taken for somebody else's.
        self.wait_for_ticks(20)
        self.assertEqual(0, self.status()['agent']['foreign_changes'])
        self.assertEqual(0, self.stop_agent(process))
        self.assertEqual(self.before, self.everything())

    def test_gang_out_of_turn_is_idle_and_each_vcpu_has_a_cpu(self) -> None:
        process = self.start_windows()
        for domain in self.domains:
            self.wait_for(
                lambda one=domain: base.in_kernel(one)[1].strip() == '1',
                'it to be idle',
            )
            self.wait_for(
                lambda one=domain: (
                    sorted(map(sorted, base.in_kernel(one)[0])) == [[0], [1]]
                ),
                'its vCPUs to be placed',
            )
        self.assertEqual(
            [was[1] for was in self.before],
            [domain.vcpuPinInfo(base.LIVE) for domain in self.domains],
        )
        self.assertEqual(0, self.stop_agent(process))
        self.assertEqual(self.before, self.everything())

    def test_restore_after_a_kill_ends_idle_and_placement(self) -> None:
        process = self.start_windows()
        self.wait_for(
            lambda: any(
                base.in_kernel(domain)[1].strip() == '1'
                for domain in self.domains
            ),
            'one to be idle',
        )
        process.kill()
        process.join(PATIENCE_S)
        self.assertEqual(0, self.restore())
        self.assertEqual(self.before, self.everything())

    def test_weights_do_not_appear_in_the_domain_xml(self) -> None:
        """And nowhere else: the XML, which migrates, has none of it."""
        before = [domain.XMLDesc() for domain in self.domains]
        process = self.start_windows()
        for domain in self.domains:
            self.wait_for_windows(domain)
            self.assertNotIn('<shares>', domain.XMLDesc())
        self.assertEqual(0, self.stop_agent(process))
        self.assertEqual(self.before, self.everything())
        for was, domain in zip(before, self.domains, strict=True):
            self.assertNotIn('<shares>', was)
            self.assertNotIn('<shares>', domain.XMLDesc())

    def test_weights_written_by_libvirt_are_restored_at_stop(self) -> None:
        process = self.start_windows(window_weights='libvirt')
        for domain in self.domains:
            self.wait_for(
                lambda one=domain: '<shares>' in one.XMLDesc(), 'its shares'
            )
        self.wait_for_ticks(20)
        self.assertEqual(0, self.status()['agent']['foreign_changes'])
        self.assertEqual(0, self.stop_agent(process))
        self.assertEqual(self.before, self.everything())

    def test_windows_go_on_while_libvirtd_hangs(self) -> None:
        # Looks at the VMs hang, too.
        process = self.start_windows(reconcile_period=0.2)
        for domain in self.domains:
            self.wait_for_windows(domain)
        pid = self.daemon.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        self.addCleanup(os.kill, pid, signal.SIGCONT)
        self.wait_for_ticks(10)
        for domain in self.domains:
            path = self.weight_file(domain)
            for _ in range(2):
                now = path.read_text()
                self.wait_for(
                    lambda path=path, now=now: path.read_text() != now,
                    'the next window',
                )
        os.kill(pid, signal.SIGCONT)
        self.assertEqual(0, self.stop_agent(process))
        self.assertEqual(self.before, self.everything())

    def test_weight_reset_by_systemd_is_no_external_change(self) -> None:
        """It does not know of what was written beside it."""
        process = self.start_windows(reconcile_period=0.2)
        for domain in self.domains:
            path = self.weight_file(domain)
            self.wait_for(
                lambda path=path: self.is_accepted(
                    path.write_text, str(self.before[0][0]['cpu_shares'])
                ),
                'a moment in which it is not idle',
            )
        self.wait_for_ticks(10)
        for domain in self.domains:
            self.assertEqual([], self.vm(domain)['released'])
            self.wait_for_windows(domain)
        self.assertEqual(0, self.status()['agent']['foreign_changes'])
        self.assertEqual(0, self.stop_agent(process))
        self.assertEqual(self.before, self.everything())

    def test_externally_changed_shares_stay(self) -> None:
        """The next window writes over them, often before anybody looks."""
        process = self.start_windows(reconcile_period=3600)
        for number, domain in enumerate(self.domains):
            time.sleep(random.uniform(0, 0.5))
            self.wait_for(
                lambda domain=domain, number=number: self.is_accepted(
                    domain.setSchedulerParametersFlags,
                    {'cpu_shares': 3000 + number},
                    base.LIVE,
                ),
                'a moment in which it is not idle',
            )
        for domain in self.domains:
            self.wait_for(
                lambda one=domain: self.vm(one)['released'] == ['cpu_shares'],
                'it to be noticed',
            )
        self.wait_for_ticks(5)
        self.assertEqual([3000, 3001], [self.shares(d) for d in self.domains])
        self.assertEqual(0, self.stop_agent(process))
        for number, (was, now) in enumerate(
            zip(self.before, self.everything(), strict=True)
        ):
            self.assertEqual({**was[0], 'cpu_shares': 3000 + number}, now[0])
            self.assertEqual(was[1:], now[1:])

    def test_restore_after_a_kill_keeps_external_values(self) -> None:
        process = self.start_windows()
        process.kill()
        process.join(PATIENCE_S)
        self.domains[0].setSchedulerParametersFlags(
            {'vcpu_quota': 70_000}, base.LIVE
        )
        # Nobody can set the weight of a group that the agent left idle.
        idle = self.weight_file(self.domains[1]).with_name(cgroup.IDLE_FILE)
        idle.write_text('0')
        self.domains[1].setSchedulerParametersFlags(
            {'cpu_shares': 333}, base.LIVE
        )
        self.assertEqual(0, self.restore())
        for was, now, theirs in zip(
            self.before,
            self.everything(),
            ({'vcpu_quota': 70_000}, {'cpu_shares': 333}),
            strict=True,
        ):
            self.assertEqual({**was[0], **theirs}, now[0])
            self.assertEqual(was[1:], now[1:])

    def test_restore_updates_libvirt_if_only_the_file_was_reset(self) -> None:
        """As it is when a migration has begun; libvirt has another."""
        process = self.start_windows(window_weights='libvirt')
        for domain in self.domains:
            self.wait_for(
                lambda one=domain: '<shares>' in one.XMLDesc(), 'its shares'
            )
        process.kill()
        process.join(PATIENCE_S)
        told = []
        for was, domain in zip(self.before, self.domains, strict=True):
            told.append(f'<shares>{was[0]["cpu_shares"]}</shares>')
            self.weight_file(domain).write_text(str(was[0]['cpu_shares']))
            self.assertNotIn(told[-1], domain.XMLDesc())
        self.assertEqual(0, self.restore())
        self.assertEqual(self.before, self.everything())
        for shares, domain in zip(told, self.domains, strict=True):
            self.assertIn(shares, domain.XMLDesc())

    def send_away(
        self, domain: libvirt.virDomain
    ) -> tuple[threading.Thread, Callable[[], None]]:
        """Begin a job as a migration is one; returns it, and what ends it."""
        pipe = self.path / 'pipe'
        os.mkfifo(pipe)
        # Opened to write, too: the job waits until somebody reads.
        reader = os.open(pipe, os.O_RDWR)
        fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
        other = libvirt.open(self.daemon.uri)
        copy = other.lookupByUUIDString(domain.UUIDString())
        job = threading.Thread(target=copy.save, args=(str(pipe),))
        job.start()

        def begun() -> bool:
            try:
                return connection.is_leaving(domain)
            except libvirt.libvirtError as error:
                # As long as a QEMU that is starved does not answer it.
                late = libvirt.VIR_ERR_OPERATION_TIMEOUT
                return bool(error.get_error_code() == late)

        self.wait_for(begun, 'the job')

        def end() -> None:
            while job.is_alive():
                if select.select([reader], [], [], 0.1)[0]:
                    os.read(reader, 1 << 16)
            os.close(reader)
            other.close()

        return job, end

    def test_restore_after_a_kill_resets_weight_of_a_migration(self) -> None:
        process = self.start_windows()
        leaving, staying = self.domains
        path, own = self.weight_file(leaving), self.before[0][0]['cpu_shares']
        for domain in self.domains:
            self.wait_for_windows(domain)
        process.kill()
        process.join(PATIENCE_S)
        self.assertNotEqual(own, int(path.read_text()))
        job, end = self.send_away(leaving)
        restore = threading.Thread(target=self.restore)
        restore.start()
        try:
            self.wait_for(lambda: int(path.read_text()) == own, 'its weight')
            # It waits for as long as the pipe is full.
            self.assertTrue(job.is_alive())
        finally:
            end()
        restore.join()
        self.assertEqual(
            self.before[1],
            (*base.everything(staying), base.in_kernel(staying)),
        )
