# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""The requirements files list exactly the distributions imported."""

import ast
import functools
import importlib.metadata
import pathlib
import re
import sys

from nova_vhpc.tests import base

TOP = pathlib.Path(__file__).parents[4]
PACKAGE = TOP / 'nova_vhpc'
TESTS = PACKAGE / 'tests'

# The scheduler's code runs in an installed nova, the plugin in an installed
# openstack client. Some benchmarks report what they need if it is not
# installed.
NOT_REQUIRED = {
    'matplotlib',
    'nova',
    'numba',
    'numpy',
    'openstack-placement',
    'osc-lib',
    'shtab',
    'textual',
}
# Programs, services of the functional stack, a database driver that a URL
# names, and the build system of the example plugin.
NOT_IMPORTED = {
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


def required(name):
    """Return the distributions in a requirements file."""
    lines = (TOP / name).read_text().splitlines()
    return {
        plain(re.match(r'[\w.-]+', line)[0])
        for line in lines
        if line and not line.startswith('#')
    }


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
    tops -= sys.stdlib_module_names | {'nova_vhpc'}
    return {plain(name) for top in tops for name in distributions()[top]}


class RequirementsTest(base.TestCase):
    def test_requirements_match_the_imports_of_the_product(self):
        modules = set(PACKAGE.rglob('*.py')) - set(TESTS.rglob('*.py'))
        self.assertEqual(
            imported(modules) - NOT_REQUIRED, required('requirements.txt')
        )

    def test_test_requirements_match_the_imports_of_the_tests(self):
        tests = imported(TESTS.rglob('*.py')) - required('requirements.txt')
        # Tests cover the optional imports of the product, too.
        self.assertEqual(
            (tests | NOT_REQUIRED) - NOT_IMPORTED,
            required('test-requirements.txt') - NOT_IMPORTED,
        )
