# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""How many clusters of a project are exchanged with other hosts."""

import testscenarios
from oslotest import base

from nova_vhpc.agent.clusters import names

MOST = names.MAX_CLUSTERS


class ClusterLimitTest(testscenarios.WithScenarios, base.BaseTestCase):
    scenarios = (
        ('by name', {'prefix': 'p/c', 'kind': 'vhpc:cluster'}),
        ('by server group', {'prefix': 'c', 'kind': 'server groups'}),
    )
    prefix: str
    kind: str

    def setUp(self) -> None:
        super().setUp()
        self.limit = names.ClusterLimit(
            lambda cluster: 'p' if cluster.startswith('c') else None
        )

    def clusters(self, *numbers: int) -> set[str]:
        return {f'{self.prefix}{number:03}' for number in numbers}

    def test_clusters_of_one_project_are_limited(self) -> None:
        invented = self.clusters(*range(MOST + 9))
        others = {'q/c', 'of a file'}
        chosen = self.limit.choose(invented | others, frozenset())
        self.assertIn(f'p (by {self.kind}) have more', self.limit.detail)
        self.assertEqual(MOST, len(chosen & invented))
        self.assertLessEqual(others, chosen)

    def test_clusters_that_were_exchanged_keep_their_place(self) -> None:
        first = self.limit.choose(
            self.clusters(*range(1, MOST + 1)), frozenset()
        )
        self.assertEqual(MOST, len(first))
        self.assertEqual('', self.limit.detail)
        more = first | self.clusters(0)
        self.assertEqual(first, self.limit.choose(more, first))
        # Until one of them is gone.
        later = self.limit.choose(more - self.clusters(1), first)
        self.assertLessEqual(self.clusters(0), later)
        self.assertEqual('', self.limit.detail)
