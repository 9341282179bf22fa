# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of :mod:`nova_vhpc.agent.clusters.cluster_limit`."""

from oslotest import base

from nova_vhpc.agent.clusters import cluster_limit

MOST = cluster_limit.MAX_NAMED_CLUSTERS


class ClusterLimitTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.limit = cluster_limit.ClusterLimit()

    def test_named_clusters_of_one_project_are_limited(self) -> None:
        invented = {f'p/c{number:03}' for number in range(MOST + 9)}
        groups = {f'group{number}' for number in range(MOST + 9)}
        others = {'q/c'}
        chosen = self.limit.choose(invented | groups | others, frozenset())
        self.assertIn(f'projects p have more than {MOST}', self.limit.detail)
        self.assertEqual(MOST, len(chosen & invented))
        self.assertLessEqual(groups | others, chosen)

    def test_clusters_that_were_exchanged_keep_their_place(self) -> None:
        first = self.limit.choose(
            {f'p/z{number}' for number in range(MOST)}, frozenset()
        )
        self.assertEqual(MOST, len(first))
        self.assertEqual('', self.limit.detail)
        self.assertEqual(first, self.limit.choose({*first, 'p/a'}, first))
        # Until one of them is gone.
        later = self.limit.choose({*first, 'p/a'} - {'p/z0'}, first)
        self.assertIn('p/a', later)
        self.assertEqual('', self.limit.detail)
