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

"""CPU sets as Nova writes them."""

import pathlib
import tempfile

import hypothesis
from hypothesis import strategies
from oslotest import base

from nova_vhpc.agent import errors
from nova_vhpc.linux import cpus


class TestCpus(base.BaseTestCase):
    def test_nova_syntax(self) -> None:
        for text, expected in (
            ('0', {0}),
            ('0-3', {0, 1, 2, 3}),
            ('0-3,^1', {0, 2, 3}),
            (' 4 , 2-3 ,', {2, 3, 4}),
            ('^2,0-2', {0, 1}),
        ):
            self.assertEqual(expected, cpus.parse_cpu_set(text), text)

    def test_what_is_not(self) -> None:
        for text in (
            *('', 'a', '3-1', '1-', '-1', '^1-2,0-3', '0,^0', '1--2'),
            # Not taken for what is right of it.
            '0,3-1',
        ):
            self.assertRaises(ValueError, cpus.parse_cpu_set, text)

    def test_more_cpus_than_there_are(self) -> None:
        """They would not fit into the memory."""
        for text in ('0-99999999999', f'^{cpus.MOST_CPUS}', '9' * 1000):
            self.assertRaises(ValueError, cpus.parse_cpu_set, text)
        self.assertEqual(8192, len(cpus.parse_cpu_set('0-8191')))

    @hypothesis.given(strategies.sets(strategies.integers(0, 300), min_size=1))
    def test_format_is_read_back(self, numbers: set[int]) -> None:
        self.assertEqual(
            numbers, cpus.parse_cpu_set(cpus.format_cpu_set(numbers))
        )

    def test_usable_is_shared_set_within_affinity(self) -> None:
        root = self.sysfs('0-7')
        self.assertEqual(
            {2, 3}, cpus.usable_cpus('2-5', root, frozenset({0, 1, 2, 3}))
        )
        self.assertEqual(
            {1, 2}, cpus.usable_cpus(None, root, frozenset({1, 2}))
        )

    def test_complaints_name_option_value_and_choice(self) -> None:
        root = self.sysfs('0-3')
        for text, affinity in (
            ('9', {0}),
            ('0-x', {0}),
            ('3', {0, 1}),
        ):
            error = self.assertRaises(
                errors.ConfigError,
                cpus.usable_cpus,
                text,
                root,
                frozenset(affinity),
            )
            self.assertIn('cpu_shared_set', str(error))
            self.assertIn(f"'{text}'", str(error))
            self.assertIn('allowed', str(error))

    def test_topology(self) -> None:
        root = self.sysfs('0-1')
        base_path = pathlib.Path(root, 'devices/system/cpu')
        for cpu, socket in ((0, 0), (1, 1)):
            topology = base_path / f'cpu{cpu}/topology'
            topology.mkdir(parents=True)
            (topology / 'physical_package_id').write_text(f'{socket}\n')
            (topology / 'core_id').write_text('7\n')
            for index, level, shared in ((0, 1, f'{cpu}'), (1, 3, '0-1')):
                cache = base_path / f'cpu{cpu}/cache/index{index}'
                cache.mkdir(parents=True)
                (cache / 'level').write_text(f'{level}\n')
                (cache / 'shared_cpu_list').write_text(f'{shared}\n')
        described = cpus.host_cpus({1, 0}, root)
        self.assertEqual([0, 1], [cpu.id for cpu in described])
        self.assertEqual([0, 1], [cpu.socket for cpu in described])
        self.assertEqual([0, 0], [cpu.llc for cpu in described])

    def sysfs(self, online: str) -> str:
        root = tempfile.mkdtemp()
        path = pathlib.Path(root, 'devices/system/cpu')
        path.mkdir(parents=True)
        (path / 'online').write_text(online + '\n')
        return root
