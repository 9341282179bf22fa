# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Windows of two hosts with different sets of clusters."""

from collections.abc import Sequence

from nova_vhpc.control import model
from nova_vhpc.tests import base
from nova_vhpc_lab.bench.lab import cluster_sets

STEP_US = 1_000
LONG_US = 4_800_000
"""A multiple of all rotations and of the frame."""


def together(schedules: Sequence[model.WindowSchedule], cluster: str) -> float:
    """Return the part of the time in which all hosts favour a cluster."""
    steps = range(0, LONG_US, STEP_US)
    return sum(
        all(
            cluster in schedule.turns[schedule.turn_at(at_us)[0]].favoured
            for schedule in schedules
        )
        for at_us in steps
    ) / len(steps)


class ClusterSetsTest(base.TestCase):
    def test_agreed_slots_are_at_the_same_time_whatever_the_sets(self) -> None:
        for sets in (cluster_sets.EQUAL, cluster_sets.DIFFERENT):
            schedules = cluster_sets.slot_schedules(sets)
            for cluster in cluster_sets.SPANNING:
                self.assertGreaterEqual(together(schedules, cluster), 0.25)

    def test_own_rotations_seldom_meet(self) -> None:
        schedules = cluster_sets.own_rotations(cluster_sets.DIFFERENT)
        for cluster in cluster_sets.SPANNING:
            self.assertLess(together(schedules, cluster), 0.1)
