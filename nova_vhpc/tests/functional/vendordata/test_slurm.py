# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Slurm reads the topology that members of a cluster print."""

import re

from nova_vhpc.tests import base
from nova_vhpc.tests.functional.vendordata import slurm
from nova_vhpc.tests.unit.vendordata import fakes
from nova_vhpc.vendordata.guest import topology_files


class SlurmTest(base.TestCase):
    """Members 1 and 4 are at one switch, 2 and 3 at another."""

    def setUp(self) -> None:
        super().setUp()
        ids = fakes.IDS
        self.switches = {
            number: ids.switch(f's{1 if number in (1, 4) else 2}')
            for number in range(1, 5)
        }
        cluster = fakes.cluster(
            [
                fakes.member(
                    number, ids.host(f'h{number}'), switch, ids.rack('r')
                )
                for number, switch in self.switches.items()
            ]
        )
        self.answer = fakes.answered(cluster, fakes.uuid(1))
        members = self.answer['members']
        self.slurm = self.useFixture(
            slurm.Slurm(
                sorted(member['name'] for member in members),
                topology_files.slurm_conf(members),
            )
        )

    def test_slurmctld_knows_the_switches_and_gives_jobs_one(self) -> None:
        shown = self.slurm.run('scontrol', 'show', 'topology')
        for switch, nodes in (
            (self.switches[1], 'member-1,member-4'),
            (self.switches[2], 'member-2,member-3'),
            (fakes.IDS.rack('r'), 'member-[1-4]'),
        ):
            self.assertRegex(
                shown, f'SwitchName={switch} .*Nodes={re.escape(nodes)}'
            )
        # A node in use leaves only the other switch with two free ones.
        for busy, expected in ((1, {2, 3}), (2, {1, 4})):
            self.occupy(f'member-{busy}')
            self.assertEqual(expected, self.job('--switches=1'))
            self.slurm.run('scancel', '-u', self.slurm.user)
            self.slurm.wait_for('slurmd', self.slurm.is_idle)

    def test_job_gets_the_variables_for_waiting(self) -> None:
        found = self.slurm.run('srun', *self.answer['wait']['slurm'], 'env')
        self.assertLessEqual(
            self.answer['wait']['environment'].items(),
            dict(
                line.partition('=')[::2] for line in found.splitlines()
            ).items(),
        )

    def occupy(self, node: str) -> None:
        """Have a job that runs on a node."""
        self.slurm.run(
            'sbatch', '-w', node, '--wrap=sleep 600', '-o', '/dev/null'
        )
        self.slurm.wait_for(
            'slurmctld',
            lambda: (
                node
                in self.slurm.run(
                    'squeue', '-h', '-t', 'R', '-o', '%N'
                ).split()
            ),
        )

    def job(self, *argv: str) -> set[int]:
        """Run a job on two nodes; return the numbers of its members."""
        out = self.slurm.run(
            'srun', '-N2', *argv, 'sh', '-c', 'echo $SLURMD_NODENAME'
        )
        return {int(name.rpartition('-')[2]) for name in out.split()}
