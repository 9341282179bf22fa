# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of :mod:`nova_vhpc.agent.metrics.endpoint`."""

import gzip
import json
import pathlib
import re
import socket
import threading
import urllib.error
import urllib.request

import fixtures
import yaml

from nova_vhpc.agent.metrics import endpoint, vm_metrics
from nova_vhpc.tests.unit import waiting
from nova_vhpc.tests.unit.agent.daemon import status_document
from nova_vhpc.tests.unit.agent.metrics import endpoint_case

RUNBOOKS = 'https://docs.openstack.org/nova-vhpc/latest/admin/runbooks.html'


class MetricsTest(endpoint_case.EndpointCase):
    def scrape(self, port: int) -> bytes:
        with socket.create_connection(('127.0.0.1', port), 60.0) as client:
            client.sendall(b'GET /metrics HTTP/1.0\r\n\r\n')
            return client.makefile('rb').read()

    def test_port_that_is_taken_is_served_once_it_is_free(self) -> None:
        """Any local user may take a port above 1024 first."""
        log = self.useFixture(fixtures.FakeLogger(endpoint.__name__))
        with socket.create_server(('127.0.0.1', 0)) as squatter:
            port = squatter.getsockname()[1]
            made = self.listen(port)
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
        made = self.listen(9, '192.0.2.1')
        self.wait_for_state(made, 'down')
        self.assertIn(
            'metrics_host = 192.0.2.1, metrics_port = 9: ',
            made.status()['detail'],
        )

    def test_slow_clients_take_few_threads_and_keep_nobody_out(self) -> None:
        made = self.listen()
        self.wait_for_state(made, 'up')
        port = made._server.server_port
        before = threading.active_count()
        for _ in range(40):
            client = socket.create_connection(('127.0.0.1', port), 60.0)
            self.addCleanup(client.close)
            client.sendall(b'GET ')
        self.assertIn(b' 200 OK', self.scrape(port))
        # prometheus_client alone would keep all forty.
        waiting.wait_for(lambda: threading.active_count() <= before + 16)

    def test_page_has_the_agent_its_vms_and_the_histogram(self) -> None:
        made = endpoint.Metrics(status_document.collector(), lambda: 'vms 1\n')
        made.observe(status_document.tick_result('u'))
        lines = made.page().decode().splitlines()
        for line in ('nova_vhpc_ticks_total 1.0', 'vms 1'):
            self.assertIn(line, lines)
        self.assertIn('nova_vhpc_tick_seconds_count 1.0', lines)

    def test_page_is_compressed_if_the_scraper_takes_it(self) -> None:
        made = self.listen()
        self.wait_for_state(made, 'up')
        url = f'http://127.0.0.1:{made._server.server_port}/metrics'
        request = urllib.request.Request(
            url, headers={'Accept-Encoding': 'gzip'}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            self.assertEqual('gzip', answer.headers['Content-Encoding'])
            text = gzip.decompress(answer.read()).decode()
        self.assertIn('nova_vhpc_ticks_total 1.0', text.splitlines())

    def test_other_methods_and_paths_are_refused(self) -> None:
        made = self.listen()
        self.wait_for_state(made, 'up')
        url = f'http://127.0.0.1:{made._server.server_port}'
        for method, path, code in (
            ('POST', '/metrics', 405),
            ('GET', '/other', 404),
        ):
            error = self.assertRaises(
                urllib.error.HTTPError,
                urllib.request.urlopen,
                urllib.request.Request(url + path, method=method),
                timeout=60,
            )
            self.assertEqual(code, error.code)
            error.close()

    def test_dashboard_and_alerts_use_existing_metrics(self) -> None:
        made = endpoint.Metrics(
            status_document.collector(),
            vm_metrics.VmMetrics(dict, lambda: None).text,
        )
        text = made.page().decode()
        top = pathlib.Path(__file__).parents[5]
        for name in ('grafana-dashboard.json', 'prometheus-alerts.yaml'):
            path = top / 'etc' / 'nova-vhpc' / name
            asked = set(re.findall(r'nova_vhpc_\w+', path.read_text()))
            self.assertGreater(len(asked), 5)
            for metric in asked:
                self.assertRegex(text, rf'(?m)^(# TYPE )?{metric}[ {{]')

    def test_panels_of_the_dashboard_do_not_overlap(self) -> None:
        top = pathlib.Path(__file__).parents[5]
        dashboard = json.loads(
            (top / 'etc/nova-vhpc/grafana-dashboard.json').read_text()
        )
        panels = dashboard['panels']
        self.assertEqual(len(panels), len({panel['id'] for panel in panels}))
        taken: dict[tuple[int, int], str] = {}
        for panel in panels:
            at = panel['gridPos']
            self.assertLessEqual(at['x'] + at['w'], 24, panel['title'])
            for x in range(at['x'], at['x'] + at['w']):
                for y in range(at['y'], at['y'] + at['h']):
                    other = taken.setdefault((x, y), panel['title'])
                    self.assertEqual(panel['title'], other)
        rows = [panel for panel in panels if panel['type'] == 'row']
        self.assertEqual(
            ['Cluster $cluster'],
            [row['title'] for row in rows if row.get('repeat') == 'cluster'],
        )

    def test_every_alert_leads_to_its_runbook(self) -> None:
        top = pathlib.Path(__file__).parents[5]
        rules = yaml.safe_load(
            (top / 'etc/nova-vhpc/prometheus-alerts.yaml').read_text()
        )
        urls = {
            rule['alert']: rule['annotations']['runbook_url']
            for group in rules['groups']
            for rule in group['rules']
        }
        page = (top / 'doc/source/admin/runbooks.rst').read_text()
        self.assertEqual(
            set(urls), set(re.findall(r'(?m)^(Vhpc\w+)\n-+$', page))
        )
        for name, url in urls.items():
            # Sphinx makes such an anchor of the title.
            self.assertEqual(f'{RUNBOOKS}#{name.lower()}', url)
