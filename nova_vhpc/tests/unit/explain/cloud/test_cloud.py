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

from nova import objects

from nova_vhpc.explain import cloud
from nova_vhpc.scheduler.hosts import state as hosts
from nova_vhpc.scheduler.planner import host_weights
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.scheduler import world


class MultipliersTest(base.TestCase):
    def test_multipliers_equal_those_of_the_weigher(self):
        """Whatever operators write, explain and weigher agree."""
        (state,) = world.world.World(1).states
        for texts in (
            (),
            ('0',),
            ('-9',),
            ('5', '-9'),
            ('-9', '5', '7'),
            (' 2.5 ',),
            ('1e3',),
            ('much',),
            ('much', '5'),
            ('5', 'much'),
            ('nan',),
            ('inf',),
            ('-inf', '5'),
            ('inf', '5'),
            ('', '5'),
        ):
            aggregates = [
                {
                    'hosts': [state.host],
                    'metadata': {host_weights.MULTIPLIER_KEY: text},
                }
                for text in texts
            ]
            aggregates.append({'hosts': [state.host], 'metadata': {}})
            state.aggregates = [
                objects.Aggregate(id=number, **aggregate)
                for number, aggregate in enumerate(aggregates)
            ]
            self.assertEqual(
                hosts.weight_multiplier(state, 20.0),
                cloud._multipliers(aggregates).get(state.host, 20.0),
                texts,
            )
