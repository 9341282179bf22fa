# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Slots of two hosts with different sets of clusters."""

from oslotest import base

from nova_vhpc_lab.bench.lab import cluster_sets


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
