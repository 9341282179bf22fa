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


import random
import statistics

from nova_vhpc.tests import base
from nova_vhpc.tests.unit.scheduler.planner.test_planner import host, plan


class RoomyTest(base.TestCase):
    def test_small_holes_of_a_rack_are_not_filled_at_any_price(self):
        """Without its small hosts, a cloud is hardly ever cheaper."""
        over = []
        for seed in range(8):
            choose = random.Random(seed)
            facts = [
                host(
                    n,
                    used=choose.randrange(16),
                    switch=f's{n // 16}',
                    rack=f'r{n // 32}',
                )
                for n in range(96)
            ]
            places = [
                sum(fact.free_cpus for fact in facts if fact.rack == rack)
                for rack in ('r0', 'r1', 'r2')
            ]
            whole, *parts = (
                plan(
                    int(0.6 * max(places)),
                    [fact for fact in facts if fact.free_cpus >= least],
                    network='multiple-shared',
                    paradigm='hybrid',
                ).cost
                for least in (0, 2, 4, 6, 8)
            )
            over.append(whole / min(parts))
        self.assertLess(statistics.mean(over), 1.06)
        self.assertLess(max(over), 1.15)
