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

"""The status document, its socket and its metrics."""

import dataclasses
import errno
import json
import os
import pathlib
import re
import socket
import stat
import threading
from typing import Any
from unittest import mock

import fixtures
import prometheus_client
import yaml
from oslotest import base

from nova_vhpc.agent.daemon import metrics, status, tick
from nova_vhpc.agent.probes import sampler
from nova_vhpc.control import model
from nova_vhpc.tests.unit.agent.guests import test_guest
from nova_vhpc.tests.unit.agent.probes import test_sampler


def moment(uuid: str) -> tick.TickResult:
    vm = model.VmView(
        uuid, 2, sample=model.Sample(5.0, 6.0, (1.0, 2.0), elapsed_us=1.0)
    )
    plan = model.VmPlan(
        uuid,
        model.CpuTune(5_000, 5_000),
        None,
        5_000,
        model.Phase.IO,
        'because',
    )
    return tick.TickResult(
        model.HostView(1, 0, 100_000, (), (vm,)),
        model.Plan({uuid: plan}),
        123.0,
    )


def document() -> dict:
    target = test_guest.make()
    target.reader = sampler.VmReader(
        [test_sampler.Sync(None, test_sampler.READING)], []
    )
    for now_us in (1_000_000, 1_200_000):
        target.reader.read(now_us, 100_000)
    agent = {key: 1 for key, _, _ in metrics.AGENT_COUNTERS}
    agent |= {key: 2 for key, _, _ in metrics.AGENT_GAUGES}
    return {
        'agent': agent,
        'vms': status.vm_statuses({'u': target}, moment('u')),
    }


class TestStatus(base.BaseTestCase):
    def test_vm(self) -> None:
        (vm,) = document()['vms']
        self.assertEqual('io', vm['phase'])
        self.assertEqual(5_000, vm['slice_us'])
        self.assertEqual(100_000, vm['period_us'])
        self.assertEqual(['0-1', '0-1'], vm['vcpu_pins'])
        self.assertEqual(0.5, vm['run_us'])
        json.dumps(vm)

    def test_what_could_not_be_done(self) -> None:
        now = moment('u')
        now = dataclasses.replace(
            now,
            plan=dataclasses.replace(
                now.plan,
                ignored=(
                    model.Ignored('u', 'too wide'),
                    model.Ignored('x', 'has no uuid'),
                ),
            ),
        )
        (vm,) = status.vm_statuses({'u': test_guest.make()}, now)
        self.assertEqual(['too wide'], vm['remarks'])

    def test_before_the_first_tick(self) -> None:
        (vm,) = status.vm_statuses({'u': test_guest.make()}, None)
        self.assertIsNone(vm['phase'])
        json.dumps(vm)

    def test_socket(self) -> None:
        path = self.useFixture(fixtures.TempDir('/tmp')).join('s')
        server = status.StatusServer(path, 0o640, lambda: {'a': [1]})
        server.start()
        self.assertEqual(0o640, stat.S_IMODE(os.stat(path).st_mode))
        self.assertEqual({'a': [1]}, status.fetch(path))
        self.assertEqual({'a': [1]}, status.fetch(path))
        server.stop()
        self.assertRaises(OSError, status.fetch, path)
        self.assertFalse(os.path.exists(path))

    def test_outlives_a_lack_of_descriptors(self) -> None:
        path = self.useFixture(fixtures.TempDir('/tmp')).join('s')
        server = status.StatusServer(path, 0o600, lambda: {'a': 1})
        accept, lacks = socket.socket.accept, [errno.EMFILE, errno.ENFILE]

        def fails(one: socket.socket) -> object:
            if lacks:
                raise OSError(lacks.pop(), 'Too many open files')
            return accept(one)

        with (
            mock.patch.object(socket.socket, 'accept', fails),
            mock.patch.object(status, 'PAUSE_S', 0.0),
            self.assertLogs('nova_vhpc.agent.daemon.status', 'INFO') as logs,
        ):
            server.start()
            self.addCleanup(server.stop)
            self.assertEqual({'a': 1}, status.fetch(path, 60.0))
            self.assertEqual({'a': 1}, status.fetch(path, 60.0))
        self.assertEqual(
            ['WARNING', 'INFO'], [one.levelname for one in logs.records]
        )

    def test_a_socket_left_by_a_crash_is_replaced(self) -> None:
        path = self.useFixture(fixtures.TempDir('/tmp')).join('s')
        pathlib.Path(path).write_text('')
        server = status.StatusServer(path, 0o600, dict)
        server.start()
        self.addCleanup(server.stop)
        self.assertEqual({}, status.fetch(path))


class TestMetrics(base.BaseTestCase):
    def serve(self) -> int:
        made = metrics.Metrics(document)
        port = made.start('127.0.0.1', 0)
        self.addCleanup(made.stop)
        return port

    def connect(self, port: int, words: bytes) -> socket.socket:
        client = socket.create_connection(('127.0.0.1', port), 60.0)
        self.addCleanup(client.close)
        client.sendall(words)
        return client

    def test_who_says_nothing_keeps_no_thread(self) -> None:
        port = self.serve()
        with mock.patch.object(metrics.Handler, 'timeout', 0.1):
            for words in (b'', b'GET /metrics HTTP/1.1\r\n'):
                self.assertEqual(b'', self.connect(port, words).recv(64))

    def test_no_more_threads_than_a_few(self) -> None:
        asked = threading.Semaphore(0)

        class Places(threading.BoundedSemaphore):
            def acquire(self, *args: Any, **kwargs: Any) -> bool:
                got = super().acquire(*args, **kwargs)
                asked.release()
                return got

        port = self.serve()
        with mock.patch.object(metrics.Handler, '_free', Places(2)):
            clients = []
            for _ in range(2):
                clients.append(self.connect(port, b'GET '))
                # The third one's thread may be faster else.
                self.assertTrue(asked.acquire(timeout=60.0))
            self.assertEqual(b'', self.connect(port, b'').recv(64))
            for client in clients:
                client.sendall(b'/metrics HTTP/1.0\r\n\r\n')
                self.assertIn(b' 200 OK', client.recv(64))

    def test_all_of_a_vm_and_the_tick(self) -> None:
        made = metrics.Metrics(document)
        made.note(moment('u'))
        text = prometheus_client.generate_latest(made.registry).decode()
        for line in (
            'nova_vhpc_vm_slice_microseconds{name="vm",uuid="u"} 5000.0',
            'nova_vhpc_vm_io_phase{name="vm",uuid="u"} 1.0',
            'nova_vhpc_vm_io_events{name="vm",uuid="u"} 6.0',
            'nova_vhpc_tick_seconds_count 1.0',
            'nova_vhpc_vms{workload="general"} 1.0',
        ):
            self.assertIn(line, text)

    def test_whether_uplinks_are_published(self) -> None:
        for state, line in (
            ('published', 'nova_vhpc_uplinks_published 1.0'),
            ('placement-away', 'nova_vhpc_uplinks_published 0.0'),
            ('starting', 'nova_vhpc_uplinks_published 0.0'),
            ('off', None),
            ('dry-run', None),
        ):
            told = document() | {'publishing': {'state': state}}
            made = metrics.Metrics(lambda told=told: told)
            text = prometheus_client.generate_latest(made.registry).decode()
            lines = re.findall(
                r'^nova_vhpc_uplinks_published .*$', text, re.MULTILINE
            )
            self.assertEqual([line] if line else [], lines, state)

    def test_dashboard_and_alerts_ask_for_metrics_that_exist(self) -> None:
        made = metrics.Metrics(document)
        text = prometheus_client.generate_latest(made.registry).decode()
        top = pathlib.Path(__file__).parents[5]
        for name in ('grafana-dashboard.json', 'prometheus-alerts.yaml'):
            path = top / 'etc' / 'nova-vhpc' / name
            asked = set(re.findall(r'nova_vhpc_\w+', path.read_text()))
            self.assertGreater(len(asked), 5)
            for metric in asked:
                self.assertRegex(text, rf'(?m)^(# TYPE )?{metric}[ {{]')

    def test_the_page_says_what_to_do_at_each_alert(self) -> None:
        top = pathlib.Path(__file__).parents[5]
        rules = yaml.safe_load(
            (top / 'etc/nova-vhpc/prometheus-alerts.yaml').read_text()
        )
        names = {
            rule['alert']
            for group in rules['groups']
            for rule in group['rules']
        }
        page = (top / 'doc/source/admin/monitoring.rst').read_text()
        self.assertEqual(names, set(re.findall(r'``(Vhpc\w+)``', page)))
