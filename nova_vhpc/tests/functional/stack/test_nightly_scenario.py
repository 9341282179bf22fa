# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The gate's smoke test, started as in the gate, on the embedded stack."""

import os
import pathlib
import subprocess
import sys

import testtools

from nova_vhpc_lab.stack import scenario

TOP = pathlib.Path(__file__).parents[4]


class TestGateScenario(testtools.TestCase):
    """Has a stack to itself, because the scenario claims every uplink."""

    def setUp(self) -> None:
        super().setUp()
        self.stage = scenario.Scenario(hosts=1)
        self.addCleanup(self.stage.stop)
        self.stage.start()
        self.stage.write_agent_conf()
        self.stage.start_agents()
        self.addCleanup(self.stage.stop_agents)
        (self.host,) = self.stage.hosts
        self.stage.wait(
            'uplinks in Placement',
            lambda: self.stage.published(self.host.name),
        )
        self.stage.admin.make_flavor('vhpc', scenario.FLAVOR)

    def test_scenario_passes_on_the_embedded_stack(self) -> None:
        credentials = self.stage.cloud.config.credentials('admin')
        result = subprocess.run(
            [
                sys.executable,
                '-m',
                'unittest',
                'discover',
                *('-s', 'nova_vhpc/tests/scenario', '-t', '.'),
            ],
            cwd=TOP,
            env={
                **{f'OS_{k.upper()}': str(v) for k, v in credentials.items()},
                'PATH': os.environ['PATH'],
                'CI': 'true',
                'OS_IDENTITY_API_VERSION': '3',
                'VHPC_SCENARIO_FLAVOR': 'vhpc',
                'VHPC_SCENARIO_IMAGE': self.stage.images['barrier'],
                'VHPC_SCENARIO_NETWORK': self.stage.networks[0]['uuid'],
                'VHPC_SCENARIO_LIBVIRT_URI': self.host.uri,
                'VHPC_SCENARIO_CTL_CONF': str(
                    self.stage.agent_conf(self.host)
                ),
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        self.assertEqual(
            0, result.returncode, result.stdout[-4000:] + result.stderr[-4000:]
        )
        self.assertIn('Ran 6 tests', result.stderr)
