# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What the subcommands that simulate hosts have in common."""

import dataclasses
import os

from nova_vhpc.tests import base
from nova_vhpc_lab.bench.common import simulations


@dataclasses.dataclass(frozen=True)
class Job:
    number: int

    def run(self):
        return self.number, os.getpid()


class TestRunAll(base.TestCase):
    def test_results_come_in_the_order_of_the_jobs(self):
        jobs = [Job(number) for number in range(5)]
        for workers in (1, 2):
            results = [*simulations.run_all(jobs, workers)]
            self.assertEqual([*range(5)], [number for number, _ in results])

    def test_one_worker_is_this_process(self):
        jobs = [Job(1), Job(2)]
        for workers, here in ((1, True), (2, False)):
            pids = {pid for _, pid in simulations.run_all(jobs, workers)}
            self.assertEqual(here, os.getpid() in pids)
