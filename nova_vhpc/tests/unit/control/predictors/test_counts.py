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

"""Bounded tables of successors."""

from nova_vhpc.control.predictors import counts
from nova_vhpc.tests import base


class CountTableTest(base.TestCase):
    def test_counts_what_followed(self):
        table = counts.CountTable()
        for state in (1, 2, 2):
            table.add('context', state)
        self.assertEqual({1: 1, 2: 2}, dict(table.get('context')))
        self.assertEqual({}, dict(table.get('other')))

    def test_forgets_the_longest_unused_context(self):
        table = counts.CountTable(max_contexts=2)
        table.add('a', 1)
        table.add('b', 1)
        table.add('a', 1)
        table.add('c', 1)
        self.assertEqual({}, dict(table.get('b')))
        self.assertEqual({1: 2}, dict(table.get('a')))

    def test_the_rarest_successor_gives_way(self):
        table = counts.CountTable(max_successors=2)
        for state in (1, 1, 2, 3):
            table.add('a', state)
        self.assertEqual({1: 2, 3: 1}, dict(table.get('a')))

    def test_halves_at_the_ceiling_so_that_the_past_fades(self):
        table = counts.CountTable(ceiling=4)
        table.add('a', 2)
        for _ in range(5):
            table.add('a', 1)
        self.assertEqual({1: 2}, dict(table.get('a')))
        table.add('a', 1)
        self.assertEqual({1: 3}, dict(table.get('a')))
