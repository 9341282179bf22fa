# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The example plugin of the contributor guide, installed and used."""

import json
import os
import pathlib
import subprocess
import sys

import fixtures

from nova_vhpc.tests import base

EXAMPLE = pathlib.Path(__file__).parent / 'example'


class ExamplePluginTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.dir = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        source = self.dir / 'source'
        source.mkdir()
        for name in ('pyproject.toml', 'nova_vhpc_example.py'):
            (source / name).write_text((EXAMPLE / name).read_text())
        self.run_program(
            [
                sys.executable,
                '-m',
                'pip',
                'install',
                '-q',
                '--no-deps',
                '--no-build-isolation',
                '--target',
                str(self.dir / 'site'),
                str(source),
            ]
        )

    def run_program(self, command, code=0):
        result = subprocess.run(
            command,
            env={**os.environ, 'PYTHONPATH': str(self.dir / 'site')},
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(code, result.returncode, result.stderr)
        return result

    def test_installed_predictor_is_found_and_predicts(self):
        period = [0, 0, 0, 0, 0, 120, 120, 120, 0, 0]
        rows = '\n'.join(str(events) for events in period * 20)
        (self.dir / 'trace.csv').write_text(f'vm0\n{rows}\n')
        out = self.dir / 'out.json'
        self.run_program(
            [
                *(sys.executable, '-m', 'nova_vhpc_lab.cli', 'predictors'),
                *('--traces', str(self.dir), '--json', str(out)),
            ]
        )
        figures = json.loads(out.read_text())['traces']
        self.assertEqual(
            [True], ['periodic' in trace for trace in figures.values()]
        )
