# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Requirements and extras list exactly the distributions imported."""

import ast
import configparser
import functools
import importlib.metadata
import itertools
import pathlib
import re
import sys
import tomllib

from nova_vhpc.tests import base

TOP = pathlib.Path(__file__).parents[4]
PACKAGE = TOP / 'nova_vhpc'
TESTS = PACKAGE / 'tests'
LAB = TOP / 'lab'

# The scheduler's code runs in an installed nova. A benchmark reports that it
# needs nova and Placement if they are not installed.
NOT_REQUIRED = {'nova', 'openstack-placement'}
# Programs, services of the functional stack, a database driver that a URL
# names, and the build system of the example plugin.
NOT_IMPORTED = {
    'ansible-core',
    'build',
    'glance',
    'keystone',
    'neutron',
    'pymysql',
    'setuptools',
    'stestr',
    'twine',
}


def plain(name):
    return re.sub('[-_.]+', '-', name).lower()


def names(lines):
    """Return the distributions in lines of requirements."""
    return {
        plain(re.match(r'[\w.-]+', line)[0])
        for line in lines
        if line and not line.startswith('#')
    }


def required(name):
    """Return the distributions in a requirements file."""
    return names((TOP / name).read_text().splitlines())


def extras():
    """Return the lines of each extra."""
    project = tomllib.loads((TOP / 'pyproject.toml').read_text())['project']
    return project['optional-dependencies']


def product():
    """Return the distributions of the base and of all extras."""
    of_extras = set().union(*map(names, extras().values())) - {'nova-vhpc'}
    return required('requirements.txt') | of_extras


@functools.cache
def distributions():
    return importlib.metadata.packages_distributions()


def imported(paths):
    """Return the distributions that modules import from."""
    tops = set()
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                tops |= {alias.name.split('.')[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                tops.add(node.module.split('.')[0])
    # tools/mutations.sh installs Cosmic Ray for itself.
    ours = {'nova_vhpc', 'nova_vhpc_lab', 'cosmic_ray'}
    tops -= sys.stdlib_module_names | ours
    return {plain(name) for top in tops for name in distributions()[top]}


class RequirementsTest(base.TestCase):
    def test_base_and_extras_match_the_imports_of_the_product(self):
        modules = set(PACKAGE.rglob('*.py')) - set(TESTS.rglob('*.py'))
        self.assertEqual(imported(modules) - NOT_REQUIRED, product())

    def test_test_requirements_match_the_imports_of_the_tests(self):
        lab = tomllib.loads((LAB / 'pyproject.toml').read_text())['project']
        modules = [*TESTS.rglob('*.py'), *LAB.rglob('*.py')]
        tests = imported(modules) - product() - names(lab['dependencies'])
        # Tests cover what the product imports of nova, too.
        self.assertEqual(
            (tests | NOT_REQUIRED) - NOT_IMPORTED,
            required('test-requirements.txt') - NOT_IMPORTED,
        )

    def test_library_has_one_minimum_in_all_extras(self):
        minimums = {}
        for line in itertools.chain(*extras().values()):
            minimums.setdefault(*names([line]), set()).add(line)
        del minimums['nova-vhpc']
        self.assertEqual(
            [], [lines for lines in minimums.values() if len(lines) > 1]
        )

    def test_tox_installs_every_extra(self):
        tox = configparser.ConfigParser(interpolation=None)
        tox.read(TOP / 'tox.ini')
        self.assertEqual(sorted(extras()), tox['testenv']['extras'].split())
