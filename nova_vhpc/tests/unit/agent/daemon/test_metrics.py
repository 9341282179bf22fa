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
import time

import fixtures
import prometheus_client
import yaml
from oslotest import base

from nova_vhpc.agent.daemon import health_watch, metrics
from nova_vhpc.tests.unit.agent.daemon import status_document


class MetricsTest(base.BaseTestCase):
    def start(self, port: int = 0, host: str = '127.0.0.1') -> metrics.Metrics:
        self.useFixture(
            fixtures.MockPatchObject(metrics, 'MAX_BACKOFF_S', 0.01)
        )
        made = metrics.Metrics(status_document.document)
        made.start(host, port)
        self.addCleanup(made.stop)
        return made

    def wait_for_state(self, made: metrics.Metrics, state: str) -> None:
        end_s = time.monotonic() + 60
        while made.status()['state'] != state:
            self.assertLess(time.monotonic(), end_s, made.status())
            time.sleep(0.01)

    def scrape(self, port: int) -> bytes:
        with socket.create_connection(('127.0.0.1', port), 60.0) as client:
            client.sendall(b'GET /metrics HTTP/1.0\r\n\r\n')
            return client.makefile('rb').read()

    def test_port_that_is_taken_is_served_once_it_is_free(self) -> None:
        """Any local user may take a port above 1024 first."""
        log = self.useFixture(fixtures.FakeLogger(metrics.__name__))
        with socket.create_server(('127.0.0.1', 0)) as squatter:
            port = squatter.getsockname()[1]
            made = self.start(port)
            self.wait_for_state(made, 'down')
            self.assertIn(
                f'metrics_port = {port}: Address already in use',
                made.status()['detail'],
            )
        self.wait_for_state(made, 'up')
        self.assertEqual('', made.status()['detail'])
        self.assertIn(b' 200 OK', self.scrape(port))
        self.assertEqual(2, len(log.output.splitlines()), log.output)
        made.stop()
        self.assertEqual('off', made.status()['state'])

    def test_address_of_another_host_is_reported(self) -> None:
        # Of a block that is for documentation.
        made = self.start(9, '192.0.2.1')
        self.wait_for_state(made, 'down')
        self.assertIn(
            'metrics_host = 192.0.2.1, metrics_port = 9: ',
            made.status()['detail'],
        )

    def test_slow_clients_keep_no_scraper_out(self) -> None:
        made = self.start()
        self.wait_for_state(made, 'up')
        port = made._server.server_port
        for _ in range(100):
            client = socket.create_connection(('127.0.0.1', port), 60.0)
            self.addCleanup(client.close)
            client.sendall(b'GET ')
        self.assertIn(b' 200 OK', self.scrape(port))

    def test_each_part_has_its_health(self) -> None:
        document = status_document.document()
        document['health'] = health_watch.HealthWatch().judge(document)
        made = metrics.Metrics(lambda: document)
        text = prometheus_client.generate_latest(made.registry).decode()
        for line in (
            'nova_vhpc_part_healthy{part="libvirt"} 1.0',
            'nova_vhpc_part_healthy{part="probes"} 0.0',
        ):
            self.assertIn(line, text)

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
