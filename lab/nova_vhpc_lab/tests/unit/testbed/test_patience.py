# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""How long is waited, and what is said after that."""

import os
import subprocess
import sys
from unittest import mock

from nova_vhpc.tests import base
from nova_vhpc_lab.testbed import patience

PROGRAM = (
    'from nova_vhpc_lab.testbed import patience; print(patience.PATIENCE_S)'
)


class PatienceTest(base.TestCase):
    def run_program(self, value: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, '-c', PROGRAM],
            env={**os.environ, patience.VARIABLE: value},
            capture_output=True,
            text=True,
            check=False,
        )

    def test_variable_multiplies_the_time(self) -> None:
        for value, seconds in (('', 300), ('4', 1200), ('0.5', 150)):
            with self.subTest(value):
                self.assertEqual(
                    f'{seconds:.1f}\n', self.run_program(value).stdout
                )

    def test_wrong_variable_is_named(self) -> None:
        for value in ('long', '0', 'nan', '-1'):
            with self.subTest(value):
                done = self.run_program(value)
                self.assertEqual((1, ''), (done.returncode, done.stdout))
                self.assertIn(f"VHPC_PATIENCE: '{value}' is no", done.stderr)

    def test_error_says_limit_load_and_remedy(self) -> None:
        for load, busy in ((50.0, ', which is busy'), (1.0, '')):
            with (
                mock.patch.object(os, 'getloadavg', return_value=(load,)),
                mock.patch.object(
                    os, 'sched_getaffinity', return_value={0, 1}
                ),
            ):
                error = patience.TooLongError('server a is still BUILD', 240)
            self.assertEqual(
                'server a is still BUILD: not within 240 s on this machine'
                f'{busy} (load {load} on 2 CPUs); '
                f'VHPC_PATIENCE={4 * patience.TIMES:g} waits longer',
                str(error),
            )
