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


"""Slots of two hosts with different sets of clusters."""

from oslotest import base

from nova_vhpc.bench.lab import cluster_sets


class TestClusterSets(base.BaseTestCase):
    def test_each_setting_is_measured(self) -> None:
        messages: list[str] = []
        figures = cluster_sets.measure(1.6, 1, messages.append)
        progress = figures['progress']
        self.assertEqual(
            {'equal', 'different', 'rotation', 'stock'}, progress.keys()
        )
        for setting, part in progress.items():
            self.assertGreater(part, 0.0, setting)
        self.assertGreater(figures['of_equal'], 0.0)
        self.assertEqual(4, len(messages))
