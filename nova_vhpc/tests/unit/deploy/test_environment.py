# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What the role of compute hosts does to an environment that is there."""

import json
import os
import pathlib
import subprocess
import sys
import venv

import fixtures

from nova_vhpc.tests import base

TASKS = (
    pathlib.Path(__file__).parents[4]
    / 'deploy/ansible/roles/nova_vhpc_agent/tasks/environment.yml'
)


class EnvironmentTest(base.TestCase):
    def setUp(self) -> None:
        super().setUp()
        self.home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.environment = self.home / 'environment'

    def play(self) -> None:
        """Run the tasks on this machine."""
        playbook = self.home / 'play.json'
        playbook.write_text(
            json.dumps(
                [
                    {
                        'hosts': 'localhost',
                        'connection': 'local',
                        'gather_facts': False,
                        'vars': {
                            'ansible_python_interpreter': sys.executable,
                            '__nova_vhpc_agent_venv': str(self.environment),
                        },
                        'tasks': [{'import_tasks': str(TASKS)}],
                    }
                ]
            )
        )
        ended = subprocess.run(
            [
                *(sys.executable, '-m', 'ansible.cli.playbook'),
                *('-i', 'localhost,', str(playbook)),
            ],
            env={
                **os.environ,
                'ANSIBLE_HOME': str(self.home / 'ansible'),
                'ANSIBLE_LOCAL_TEMP': str(self.home / 'local'),
                'ANSIBLE_REMOTE_TEMP': str(self.home / 'remote'),
                'ANSIBLE_NOCOLOR': '1',
            },
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(0, ended.returncode, ended.stdout + ended.stderr)

    def test_environment_of_a_python_that_is_gone_is_removed(self) -> None:
        """Python 3.13 of Debian 13 does not look into ``lib/python3.11``."""
        venv.create(self.environment, with_pip=False)
        (packages,) = (self.environment / 'lib').glob('python3*')
        self.play()
        self.assertTrue(packages.exists())

        packages.rename(packages.with_name('python3.0'))
        self.play()
        self.assertFalse(self.environment.exists())

        self.play()
        self.assertFalse(self.environment.exists())
