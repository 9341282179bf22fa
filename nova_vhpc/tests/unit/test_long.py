# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What differs in the nightly run differs, and is listed in the docs."""

import ast
import os
import pathlib
from unittest import mock

from nova_vhpc.tests import base, long

TOP = pathlib.Path(__file__).parents[3]
ROOTS = ('nova_vhpc/tests', 'lab/nova_vhpc_lab/tests')
PAGE = TOP / 'doc/source/contributor/testing.rst'


def modules():
    """Yield name, as the page has it, and source of each test module."""
    for root in ROOTS:
        for path in sorted((TOP / root).rglob('test_*.py')):
            parts = path.relative_to(TOP / root).with_suffix('').parts
            yield '.'.join(parts), path.read_text()


def calls(source):
    """Yield the arguments of each call of ``long.long``."""
    if 'long.long(' not in source:
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and (
            ast.unparse(node.func) == 'long.long'
        ):
            yield node.args


class LongTest(base.TestCase):
    def test_value_depends_on_the_environment(self):
        choose = long.long
        for value, expected in (('', 1), ('1', 2)):
            with mock.patch.dict(os.environ, VHPC_LONG=value):
                self.assertEqual(expected, choose(1, 2))

    def test_all_that_differs_is_listed(self):
        page = PAGE.read_text()
        differing = set()
        for name, source in modules():
            for often, nightly in calls(source):
                self.assertNotEqual(
                    ast.unparse(often), ast.unparse(nightly), name
                )
                differing.add(name)
            if name.rpartition('.')[2].startswith('test_nightly_'):
                differing.add(name)
        self.assertIn('unit.agent.clusters.test_protocol', differing)
        unlisted = {name for name in differing if f'``{name}``' not in page}
        self.assertEqual(set(), unlisted)
