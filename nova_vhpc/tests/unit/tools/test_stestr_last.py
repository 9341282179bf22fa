# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What failed in a real run of stestr can be run again."""

import os
import pathlib
import subprocess
import sys
import tempfile

from nova_vhpc.tests import base

TOOL = pathlib.Path(__file__).parents[4] / 'tools' / 'stestr_last.py'

SUITE = """
import os
import pathlib
import unittest

AGAIN = pathlib.Path('again').exists()
DYING = pathlib.Path('dying').exists()


class ClassTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        assert AGAIN

    def test_a(self):
        pass

    def test_b(self):
        pass


class MethodTest(unittest.TestCase):
    def test_c(self):
        assert AGAIN

    def test_c_too(self):
        if DYING:
            os._exit(1)

    @unittest.expectedFailure
    def test_d(self):
        assert not AGAIN

    @unittest.skip('no reason')
    def test_e(self):
        pass
"""


class StestrLastTest(base.TestCase):
    """A suite of which some tests fail, but not when they are run again."""

    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)
        (self.root / 'suite').mkdir()
        (self.root / 'suite' / '__init__.py').touch()
        (self.root / 'suite' / 'test_suite.py').write_text(SUITE)
        (self.root / '.stestr.conf').write_text(
            '[DEFAULT]\ntest_path=./suite\n'
        )

    def call(self, *command):
        return subprocess.run(
            command,
            cwd=self.root,
            env={'PATH': os.environ['PATH'], 'PYTHON': sys.executable},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run_suite(self, *arguments):
        return self.call('stestr', 'run', '--serial', *arguments).returncode

    def last(self, *what):
        return self.call(
            sys.executable, TOOL, what[0], '.', *what[1:]
        ).stdout.strip()

    def failed(self):
        listed = self.call('stestr', 'list').stdout
        (self.root / 'listed').write_text(listed)
        return self.last('failed', 'listed')

    def test_counts(self):
        self.assertNotEqual(0, self.run_suite())
        self.assertEqual('1 3 1', self.last('counts'))

    def test_failed_selects_the_tests_of_a_failed_class_too(self):
        self.run_suite()
        failed = self.failed()
        (self.root / 'again').touch()
        self.assertEqual(0, self.run_suite(failed))
        # test_a, test_b, test_c and test_d.
        self.assertEqual('4 0 0', self.last('counts'))
        self.assertEqual('', self.last('failed', os.devnull))

    def test_what_a_worker_that_died_left_out_is_selected(self):
        (self.root / 'again').touch()
        (self.root / 'dying').touch()
        self.run_suite('MethodTest')
        self.assertEqual('1 1 0', self.last('counts'))
        failed = self.failed()
        (self.root / 'dying').unlink()
        self.run_suite(failed)
        # All but test_c, of which test_e is skipped.
        self.assertEqual('4 0 1', self.last('counts'))
