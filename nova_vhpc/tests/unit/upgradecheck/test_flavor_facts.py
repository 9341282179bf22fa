# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

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
