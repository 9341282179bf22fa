# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of :mod:`nova_vhpc_lab.stack.environment`."""

import pathlib
import sys

from oslotest import base

from nova_vhpc_lab.stack import environment


class EnvironmentTest(base.BaseTestCase):
    def test_programs_are_those_of_the_running_python_by_default(self) -> None:
        self.assertEqual(
            pathlib.Path(sys.executable),
            environment.HERE.program(pathlib.Path(sys.executable).name),
        )
        self.assertEqual({}, environment.HERE.variables)

    def test_only_programs_of_nova_vhpc_are_those_of_the_tree(self) -> None:
        made = environment.Environment(
            pathlib.Path('/venv/bin'), tree=pathlib.Path('/tree')
        )
        for name, path in (
            ('nova-compute', '/venv/bin/nova-compute'),
            ('nova-vhpc-agent', '/tree/bin/nova-vhpc-agent'),
        ):
            self.assertEqual(pathlib.Path(path), made.program(name))
        self.assertEqual({'PYTHONPATH': '/tree'}, made.variables)

    def test_agent_may_be_in_another_environment(self) -> None:
        made = environment.Environment(
            pathlib.Path('/venv/bin'), pathlib.Path('/new/bin')
        )
        for name, path in (
            ('nova-compute', '/venv/bin/nova-compute'),
            ('nova-vhpc-agent', '/new/bin/nova-vhpc-agent'),
        ):
            self.assertEqual(pathlib.Path(path), made.program(name))

    def test_versions_are_those_of_the_environment(self) -> None:
        (version,) = environment.HERE.versions('nova')
        self.assertRegex(version, r'^[0-9]+\.[0-9]+')
