# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""The names of metrics and the alerts, as Prometheus' own tool sees them."""

import pathlib
import re
import subprocess

import fixtures
from oslotest import base

from nova_vhpc.tests.functional.monitoring import full_host

HERE = pathlib.Path(__file__).parent
RULES = HERE.parents[3] / 'etc/nova-vhpc/prometheus-alerts.yaml'
ALERT_TESTS = HERE / 'alerts.test.yaml'


class PromtoolTest(base.BaseTestCase):
    def promtool(self, *arguments: str, stdin: bytes = b'') -> None:
        """Run promtool, and expect that it finds nothing."""
        done = subprocess.run(
            ['promtool', *arguments],
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=300,
            check=False,
        )
        self.assertEqual(0, done.returncode, done.stdout.decode())

    def test_metrics_are_named_as_prometheus_advises(self) -> None:
        root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        page = full_host.FullHost(root).metrics.page()
        lines = page.decode().splitlines()
        declared = {one.split()[2] for one in lines if one[:6] == '# TYPE'}
        seen = {re.split('[{ ]', one)[0] for one in lines if one[0] != '#'}
        for name in declared - {'nova_vhpc_tick_seconds'}:
            self.assertIn(name, seen, 'it has no sample to be checked')
        self.promtool('check', 'metrics', stdin=page)

    def test_rules_are_valid(self) -> None:
        self.promtool('check', 'rules', str(RULES))

    def test_every_alert_fires_where_it_should_and_nowhere_else(self) -> None:
        self.promtool('test', 'rules', str(ALERT_TESTS))
        tested = set(re.findall(r'alertname="(\w+)"', ALERT_TESTS.read_text()))
        alerts = set(re.findall(r'- alert: (\w+)', RULES.read_text()))
        self.assertEqual(alerts, tested)
