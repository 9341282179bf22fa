# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The image and the compose file of deploy/container have what they need."""

import contextlib
import os
import pathlib
import re
import shlex
import signal
import subprocess
import tomllib

import fixtures
import yaml

from nova_vhpc.agent.uplinks import port_networks
from nova_vhpc.conf import topology
from nova_vhpc.tests import base
from nova_vhpc.tests.unit import waiting

TOP = pathlib.Path(__file__).parents[4]
PROJECT = tomllib.loads((TOP / 'pyproject.toml').read_text())


def text(name: str) -> str:
    """Return a file of deploy."""
    return (TOP / 'deploy' / name).read_text()


class ContainerTest(base.TestCase):
    def instructions(self) -> list[tuple[str, str]]:
        """Return the instructions of the Containerfile."""
        joined = re.sub(
            r'^#.*\n', '', text('container/Containerfile'), flags=re.M
        )
        joined = joined.replace('\\\n', ' ')
        return [
            (word, rest)
            for line in joined.splitlines()
            if line.strip()
            for word, _, rest in [line.strip().partition(' ')]
        ]

    def test_commands_are_valid_shell(self) -> None:
        for word, rest in self.instructions():
            if word == 'RUN':
                # Raises where a quotation does not end.
                self.assertTrue(shlex.split(rest))
                self.assertNotIn('sudo', rest)

    def test_extras_and_copied_files_exist(self) -> None:
        told = text('container/Containerfile')
        (extras,) = re.findall(r'\$wheel\[(.*?)\]', told)
        known = set(PROJECT['project']['optional-dependencies'])
        self.assertLess(set(extras.split(',')), known)
        for word, copied in self.instructions():
            if word == 'COPY':
                for name in copied.split()[1:-1]:
                    self.assertTrue((TOP / name).exists(), name)

    def test_image_has_the_program_that_reads_flows_of_ovn(self) -> None:
        self.assertEqual('ovs-ofctl', port_networks.PROGRAM)
        self.assertIn(' openvswitch-common ', text('container/Containerfile'))

    def test_image_keeps_the_distribution_s_libvirt_python(self) -> None:
        """Another version would be built from source, without a compiler."""
        (script,) = re.findall(
            "sed -i '(.*?)' /tmp/dist/constraints.txt",
            text('container/Containerfile'),
        )
        lines = (TOP / 'constraints.txt').read_text().splitlines()
        done = subprocess.run(
            ['sed', script, TOP / 'constraints.txt'],
            check=True,
            capture_output=True,
            text=True,
        )
        gone = set(lines) - set(done.stdout.splitlines())
        self.assertEqual(
            ['libvirt-python'], [line.partition('==')[0] for line in gone]
        )

    def test_services_run_our_programs(self) -> None:
        services = yaml.safe_load(text('container/compose.yaml'))['services']
        programs = set(PROJECT['project']['scripts'])
        for name, service in services.items():
            self.assertEqual(name, service['command'][0])
            self.assertIn(name, programs)
        agent = services['nova-vhpc-agent']
        self.assertEqual('host', agent['cgroup'])
        self.assertEqual('host', agent['pid'])
        self.assertEqual('host', agent['network_mode'])

    def test_services_come_back_when_the_host_has_booted(self) -> None:
        """Engines start no container then whose policy is on-failure."""
        services = yaml.safe_load(text('container/compose.yaml'))['services']
        for name, service in services.items():
            self.assertEqual('always', service['restart'], name)

    def test_agent_keeps_what_its_unit_keeps(self) -> None:
        services = yaml.safe_load(text('container/compose.yaml'))['services']
        volumes = [
            volume.split(':')[1]
            for volume in services['nova-vhpc-agent']['volumes']
        ]
        unit = (TOP / 'etc/nova-vhpc/nova-vhpc-agent.service').read_text()
        (state,) = re.findall('^StateDirectory=(.*)$', unit, re.M)
        (runtime,) = re.findall('^RuntimeDirectory=(.*)$', unit, re.M)
        self.assertIn(f'/var/lib/{state}', volumes)
        self.assertIn(f'/run/{runtime}', volumes)
        ovsdb = pathlib.Path(topology.DEFAULT_OVSDB.removeprefix('unix:'))
        self.assertIn(str(ovsdb.parent), volumes)
        (grace,) = re.findall('^TimeoutStopSec=(.*)$', unit, re.M)
        self.assertEqual(
            f'{grace}s', services['nova-vhpc-agent']['stop_grace_period']
        )


FAKE_AGENT = """#!/bin/sh
trap 'echo reload >> calls' HUP
trap 'exit 7' TERM
echo "$*" >> calls
case "$*" in *--restore) exit 0 ;; esac
[ "$1" = clean ] && exit 0
[ "$1" = killed ] && kill -KILL $$
while :; do sleep 0.05; done
"""


class EntrypointTest(base.TestCase):
    """What the agent leaves is restored, as by systemd."""

    def setUp(self) -> None:
        super().setUp()
        self.path = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        agent = self.path / 'nova-vhpc-agent'
        agent.write_text(FAKE_AGENT)
        agent.chmod(0o755)

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        started = subprocess.Popen(
            ['sh', str(TOP / 'deploy/container/entrypoint.sh'), *command],
            cwd=self.path,
            env={'PATH': f'{self.path}:{os.environ["PATH"]}'},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            # A shell cannot trap what is ignored when it starts.
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
        )
        self.addCleanup(self.end, started)
        return started

    @staticmethod
    def end(started: subprocess.Popen[bytes]) -> None:
        """Kill a command and what it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()

    def calls(self) -> list[str]:
        return (self.path / 'calls').read_text().splitlines()

    def wait_for(self, line: str) -> None:
        calls = self.path / 'calls'
        waiting.wait_for(lambda: calls.exists() and line in self.calls())

    def test_killed_agent_is_followed_by_a_restore(self) -> None:
        self.assertEqual(
            137, self.start('nova-vhpc-agent', 'killed').wait(240)
        )
        self.assertEqual(['killed', 'killed --restore'], self.calls())

    def test_clean_end_needs_no_restore(self) -> None:
        self.assertEqual(0, self.start('nova-vhpc-agent', 'clean').wait(240))
        self.assertEqual(['clean'], self.calls())

    def test_signals_reach_the_agent(self) -> None:
        started = self.start('nova-vhpc-agent', 'runs')
        self.wait_for('runs')
        started.send_signal(signal.SIGHUP)
        self.wait_for('reload')
        started.terminate()
        self.assertEqual(7, started.wait(240))
        self.assertEqual(['runs', 'reload', 'runs --restore'], self.calls())

    def test_other_commands_run_as_they_are(self) -> None:
        self.start('nova-vhpc-agent', '--restore').wait(240)
        self.assertEqual(['--restore'], self.calls())
        self.assertEqual(3, self.start('sh', '-c', 'exit 3').wait(240))
