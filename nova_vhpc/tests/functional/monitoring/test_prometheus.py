# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""What a real Prometheus makes of a real agent, of the alerts and dashboard.

Debian has no Grafana, so each of the dashboard's queries is run as it would be
by Grafana.
"""

import json
import pathlib
import re
from collections.abc import Iterator

import fixtures
import yaml

from nova_vhpc.tests import certificates
from nova_vhpc.tests.functional.agent import base
from nova_vhpc.tests.functional.monitoring import full_host, prometheus
from nova_vhpc_lab.stack import cloud

ETC = pathlib.Path(__file__).parents[4] / 'etc/nova-vhpc'
RULES = ETC / 'prometheus-alerts.yaml'
CLUSTER = 'cfd'
SPECS = {'vhpc:workload': 'parallel', 'vhpc:cluster': CLUSTER}
_SELECTED = 'cluster=~"$cluster"'


def dashboard_queries() -> Iterator[str]:
    """Yield the queries of all panels."""
    dashboard = json.loads((ETC / 'grafana-dashboard.json').read_text())
    for panel in dashboard['panels']:
        for target in panel.get('targets', ()):
            yield target['expr']


def as_grafana_sends(query: str, **variables: str) -> str:
    """Return a query with Grafana's variables replaced; by all by default."""
    query = query.replace('$__rate_interval', '30s')
    return re.sub(
        r'\$(\w+)', lambda match: variables.get(match[1], '.*'), query
    )


def parts_of(expression: str) -> str:
    """Return an alert's expression that gives series if it does not fire.

    Each comparison gives 0 or 1, and each part of it must have series.
    """
    expression = re.sub(r'(==|>|<)', r'\1 bool', expression)
    return expression.replace('unless on', 'and on')


class PrometheusTest(base.AgentTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.cert, key = self.path / 'c.pem', self.path / 'k.pem'
        shown = {'cert_file': str(self.cert), 'key_file': str(key)}
        certificates.write(self.cert, key)
        self.port, full_port = cloud.free_ports(2)
        self.agent = f'127.0.0.1:{self.port}'
        self.domains = [self.domain(SPECS, busy=True) for _ in range(2)]
        self.start_agent(
            metrics_port=self.port,
            metrics_cert_file=self.cert,
            metrics_key_file=key,
            metrics_client_ca_file=self.cert,
        )
        # What one host alone cannot show.
        self.full = full_host.FullHost(
            pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        )
        self.full.metrics.start('127.0.0.1', full_port)
        self.addCleanup(self.full.metrics.stop)
        self.prometheus = self.useFixture(
            prometheus.Prometheus(
                [
                    {
                        'job_name': 'nova-vhpc',
                        'scheme': 'https',
                        'tls_config': {'ca_file': str(self.cert), **shown},
                        'static_configs': [{'targets': [self.agent]}],
                    },
                    {
                        'job_name': 'full',
                        'static_configs': [
                            {'targets': [f'127.0.0.1:{full_port}']}
                        ],
                    },
                    {
                        'job_name': 'without-certificate',
                        'scheme': 'https',
                        'tls_config': {'ca_file': str(self.cert)},
                        'static_configs': [{'targets': [self.agent]}],
                    },
                ],
                RULES,
            )
        )

    def wait_for_series(self, query: str) -> list[dict]:
        return self.wait_for(
            lambda: self.prometheus.series(query), f'series of {query}'
        )

    def check_dashboard(self) -> None:
        queries = list(dashboard_queries())
        self.assertGreater(len(queries), 40)
        for query in queries:
            self.wait_for_series(as_grafana_sends(query))

    def check_variables(self) -> None:
        """Each variable must have the values that the agent has."""
        dashboard = json.loads((ETC / 'grafana-dashboard.json').read_text())
        found = {}
        for variable in dashboard['templating']['list']:
            match = re.fullmatch(
                r'label_values\((.*), (\w+)\)', variable['query']
            )
            if match is not None:
                series = self.wait_for_series(as_grafana_sends(match[1]))
                found[variable['name']] = {
                    one['metric'].get(match[2]) for one in series
                }
        self.assertLessEqual({full_host.CLUSTER, CLUSTER}, found['cluster'])
        self.assertIn(self.agent, found['instance'])
        self.assertLessEqual(
            {domain.name() for domain in self.domains}, found['vm']
        )

    def check_members(self) -> None:
        """The row of a cluster must show each member of the real agent."""
        shown = [query for query in dashboard_queries() if _SELECTED in query]
        lost, by_member = shown[:2]
        self.assertIn('vcpu_delay_seconds_total', lost)
        (series,) = self.wait_for_series(
            as_grafana_sends(lost, cluster=CLUSTER)
        )
        self.assertEqual({'cluster': CLUSTER}, series['metric'])
        # Two busy guests of two vCPUs on these CPUs.
        self.assertTrue(0 <= float(series['value'][1]) < 1, series)
        names = {domain.name() for domain in self.domains}
        self.wait_for(
            lambda: (
                {
                    one['metric']['server']
                    for one in self.prometheus.series(
                        as_grafana_sends(by_member, cluster=CLUSTER)
                    )
                }
                == names
            ),
            'both members',
        )

    def check_alerts(self) -> None:
        rules = yaml.safe_load(RULES.read_text())
        for group in rules['groups']:
            for rule in group['rules']:
                self.wait_for_series(parts_of(rule['expr']))
        healths = [
            (rule['name'], rule['health'], rule.get('lastError'))
            for group in self.prometheus.get('rules')['groups']
            for rule in group['rules']
        ]
        self.assertGreater(len(healths), 15)
        for name, health, error in healths:
            self.assertEqual(('ok', None), (health, error), name)

    def check_certificate(self) -> None:
        def target(pool: str) -> dict:
            found = self.prometheus.get('targets')['activeTargets']
            return next(
                (one for one in found if one['scrapePool'] == pool),
                {'health': 'unknown', 'lastError': ''},
            )

        for pool in ('nova-vhpc', 'full'):
            self.wait_for(
                lambda pool=pool: target(pool)['health'] == 'up', pool
            )
        refused = self.wait_for(
            lambda: target('without-certificate')['lastError'], 'a refusal'
        )
        self.assertIn('tls', refused)

    def test_dashboard_and_alerts_give_series(self) -> None:
        self.check_certificate()
        self.check_members()
        self.check_variables()
        self.check_dashboard()
        self.check_alerts()
