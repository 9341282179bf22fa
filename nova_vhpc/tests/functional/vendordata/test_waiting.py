# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Real launchers take what ``nova-vhpc-hosts env --wait`` prints."""

import json
import os
import pathlib
import re
import subprocess
import sys

import fixtures

from nova_vhpc.tests import base
from nova_vhpc.tests.unit.vendordata import fakes
from nova_vhpc_lab.testbed import mpi_programs, toolchain

RANKS = 3


class WaitingTest(base.TestCase):
    """A member of a cluster whose flavor has ``vhpc:wait=passive``."""

    def setUp(self) -> None:
        super().setUp()
        self.folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        members = [fakes.member(1, 'h1'), fakes.member(2, 'h2')]
        cluster = fakes.cluster(members, wait='passive')
        answer = fakes.answered(cluster, members[0].uuid)
        (self.folder / 'program').write_text(answer['hosts_program'])
        (self.folder / 'vendor_data').write_text(json.dumps({'vhpc': answer}))
        self.statistics = self.folder / 'statistics'

    def hosts(self, *argv: str, file: str = 'vendor_data') -> str:
        """Return what ``nova-vhpc-hosts`` prints."""
        ended = subprocess.run(
            [
                *(sys.executable, str(self.folder / 'program'), *argv),
                *('--file', str(self.folder / file)),
            ],
            env={'VHPC_WAIT_STATS': str(self.statistics)},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return ended.stdout

    def test_ranks_nap_by_the_flags_of_their_launcher(self) -> None:
        for mpi, launcher in mpi_programs.LAUNCHERS.items():
            with self.subTest(mpi=mpi):
                built = mpi_programs.Programs.build(
                    mpi, self.folder / mpi, 'barriers.c'
                )
                library = built.folder / 'libvhpcwait.so'
                flags = self.hosts(
                    *('env', '--wait', '--launcher', mpi),
                    *('--library', str(library)),
                )
                toolchain.run_tool(
                    *(*launcher, *flags.split(), '-n', str(RANKS)),
                    *(str(built.program('barriers.c')), '0.5', '200'),
                    environment=dict(os.environ),
                )
                text = self.hosts('waited', file='statistics')
                self.statistics.unlink()
                match = re.fullmatch(
                    f'{RANKS} ranks: waited ([0-9,]+) calls, napped [0-9]+% '
                    'of the time, CPU was taken [0-9,]+ times\n',
                    text,
                )
                assert match, text
                self.assertGreater(int(match[1].replace(',', '')), RANKS)
