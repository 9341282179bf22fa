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

from nova_vhpc.tests import base
from nova_vhpc.upgradecheck import flavor_facts


class Answer:
    def __init__(self, flavors):
        self.flavors = flavors

    def json(self):
        return {'flavors': self.flavors}


class Nova:
    """Answers two flavors at a time, as ``[api]max_limit = 2`` does."""

    def __init__(self, count):
        self.flavors = [
            {'id': str(n), 'name': f'f{n}', 'extra_specs': {'n': str(n)}}
            for n in range(count)
        ]

    def get(self, path, params):
        assert path == '/flavors/detail'
        assert params['is_public'] == 'None'
        ids = [flavor['id'] for flavor in self.flavors]
        marker = params.get('marker')
        start = ids.index(marker) + 1 if marker else 0
        return Answer(self.flavors[start : start + 2])


class FlavorFactsTest(base.TestCase):
    def test_flavors_of_all_pages_are_read(self):
        for count in (0, 1, 2, 5):
            self.assertEqual(
                {f'f{n}': {'n': str(n)} for n in range(count)},
                flavor_facts.flavors(Nova(count)),
            )
