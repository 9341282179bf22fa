# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The waiting library with real MPI libraries."""

import json
import pathlib

import fixtures

from nova_vhpc.tests import base
from nova_vhpc_lab.testbed import mpi_programs

MODES = ('auto', 'passive', 'active')
RANKS = 4


class WaitTest(base.TestCase):
    def setUp(self) -> None:
        super().setUp()
        self.folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)

    def build(self, mpi: str, *sources: str) -> mpi_programs.Programs:
        return mpi_programs.Programs.build(mpi, self.folder / mpi, *sources)

    def statistics(self) -> list[dict[str, float]]:
        """Return what each rank of the last run counted."""
        file = self.folder / 'statistics'
        lines = file.read_text().splitlines()
        file.unlink()
        return [json.loads(line) for line in lines]

    def test_every_call_returns_what_the_mpi_library_returns(self) -> None:
        for mpi in mpi_programs.LAUNCHERS:
            programs = self.build(mpi, 'calls.c')
            without = programs.run('calls.c', RANKS)
            self.assertIn('truncated: ', without)
            self.assertTrue(without.endswith('end\n'))
            for mode in MODES:
                with self.subTest(mpi=mpi, mode=mode):
                    found = programs.run(
                        'calls.c',
                        RANKS,
                        library='wait',
                        environment={
                            'VHPC_WAIT': mode,
                            'VHPC_WAIT_STATS': f'{self.folder}/statistics',
                        },
                    )
                    self.assertEqual(without, found)
                    counted = self.statistics()
                    self.assertEqual(RANKS, len(counted))
                    for one in counted:
                        # Those of four threads, 200 each, among them.
                        self.assertGreater(one['waits'], 1600)
                        if mode == 'active':
                            self.assertEqual(0, one['naps'])
                    if mode == 'passive':
                        self.assertGreater(sum(o['naps'] for o in counted), 0)

    def test_fortran_programs_wait_too(self) -> None:
        for mpi in mpi_programs.LAUNCHERS:
            for source in ('calls.f90', 'calls77.f'):
                with self.subTest(mpi=mpi, source=source):
                    programs = self.build(mpi, source)
                    without = programs.run(source, RANKS)
                    found = programs.run(
                        source,
                        RANKS,
                        library='wait',
                        environment={
                            'VHPC_WAIT_STATS': f'{self.folder}/statistics'
                        },
                    )
                    self.assertEqual(without, found)
                    for one in self.statistics():
                        self.assertGreater(one['waits'], 20)

    def test_open_mpi_naps_in_loops_of_its_own_that_yield(self) -> None:
        programs = self.build('openmpi', 'barriers.c')
        programs.run(
            'barriers.c',
            RANKS,
            ('0.5', '200'),
            library='yield',
            environment={
                'VHPC_WAIT': 'passive',
                'VHPC_WAIT_STATS': f'{self.folder}/statistics',
            },
        )
        self.assertGreater(sum(one['naps'] for one in self.statistics()), 10)

    def test_unknown_mode_is_named_and_waits_as_auto_does(self) -> None:
        programs = self.build('mpich', 'calls.c')
        self.assertEqual(
            programs.run('calls.c', RANKS),
            programs.run(
                'calls.c',
                RANKS,
                library='wait',
                environment={'VHPC_WAIT': 'pasive'},
            ),
        )
