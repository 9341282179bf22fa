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


"""Tests of :mod:`nova_vhpc.agent.daemon.metrics`."""

import pathlib
import re
import socket
import threading
from typing import Any
from unittest import mock

import prometheus_client
import yaml
from oslotest import base

from nova_vhpc.agent.daemon import metrics
from nova_vhpc.tests.unit.agent.daemon import status_document


class MetricsTest(base.BaseTestCase):
    def serve(self) -> int:
        made = metrics.Metrics(status_document.document)
        port = made.start('127.0.0.1', 0)
        self.addCleanup(made.stop)
        return port

    def connect(self, port: int, words: bytes) -> socket.socket:
        client = socket.create_connection(('127.0.0.1', port), 60.0)
        self.addCleanup(client.close)
        client.sendall(words)
        return client

    def test_silent_client_keeps_no_thread(self) -> None:
        port = self.serve()
        with mock.patch.object(metrics.Handler, 'timeout', 0.1):
            for words in (b'', b'GET /metrics HTTP/1.1\r\n'):
                self.assertEqual(b'', self.connect(port, words).recv(64))

    def test_number_of_threads_is_limited(self) -> None:
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
                # Otherwise the third client's thread may be first.
                self.assertTrue(asked.acquire(timeout=60.0))
            self.assertEqual(b'', self.connect(port, b'').recv(64))
            for client in clients:
                client.sendall(b'/metrics HTTP/1.0\r\n\r\n')
                self.assertIn(b' 200 OK', client.recv(64))

    def test_guest_and_tick_have_metrics(self) -> None:
        made = metrics.Metrics(status_document.document)
        made.observe(status_document.tick_result('u'))
        text = prometheus_client.generate_latest(made.registry).decode()
        for line in (
            'nova_vhpc_vm_slice_microseconds{name="vm",uuid="u"} 5000.0',
            'nova_vhpc_vm_io_phase{name="vm",uuid="u"} 1.0',
            'nova_vhpc_vm_io_events{name="vm",uuid="u"} 6.0',
            'nova_vhpc_tick_seconds_count 1.0',
            'nova_vhpc_vms{workload="general"} 1.0',
        ):
            self.assertIn(line, text)

    def test_uplinks_published_follows_the_state(self) -> None:
        for state, line in (
            ('published', 'nova_vhpc_uplinks_published 1.0'),
            ('placement-away', 'nova_vhpc_uplinks_published 0.0'),
            ('starting', 'nova_vhpc_uplinks_published 0.0'),
            ('off', None),
            ('dry-run', None),
        ):
            document = status_document.document() | {
                'publishing': {'state': state}
            }
            made = metrics.Metrics(lambda document=document: document)
            text = prometheus_client.generate_latest(made.registry).decode()
            lines = re.findall(
                r'^nova_vhpc_uplinks_published .*$', text, re.MULTILINE
            )
            self.assertEqual([line] if line else [], lines, state)

    def test_dashboard_and_alerts_use_existing_metrics(self) -> None:
        made = metrics.Metrics(status_document.document)
        text = prometheus_client.generate_latest(made.registry).decode()
        top = pathlib.Path(__file__).parents[5]
        for name in ('grafana-dashboard.json', 'prometheus-alerts.yaml'):
            path = top / 'etc' / 'nova-vhpc' / name
            asked = set(re.findall(r'nova_vhpc_\w+', path.read_text()))
            self.assertGreater(len(asked), 5)
            for metric in asked:
                self.assertRegex(text, rf'(?m)^(# TYPE )?{metric}[ {{]')

    def test_every_alert_is_documented(self) -> None:
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
