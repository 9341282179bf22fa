# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The waiting library with real MPI libraries."""

import json
import pathlib
import subprocess
import sys

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

    def test_python_modules_load_the_mpi_library_for_themselves(self) -> None:
        # As mpi4py does: its MPI library is not in the global scope.
        for mpi in mpi_programs.LAUNCHERS:
            with self.subTest(mpi=mpi):
                programs = self.build(mpi, 'calls.c')
                module = programs.folder / 'calls.so'
                subprocess.run(
                    (
                        *(f'mpicc.{mpi}', '-shared', '-fPIC', '-o', module),
                        *(mpi_programs.GUEST / 'tests/calls.c', '-lpthread'),
                    ),
                    check=True,
                )
                source = programs.program('calls.c')
                source.write_text(
                    f'#!{sys.executable}\n'
                    'import ctypes\n'
                    'words = (ctypes.c_char_p * 2)(b"calls", None)\n'
                    f'ctypes.CDLL({str(module)!r}).main(1, words)\n'
                )
                without = programs.run('calls.c', RANKS)
                self.assertTrue(without.endswith('end\n'))
                self.assertEqual(
                    without, programs.run('calls.c', RANKS, library='wait')
                )

    def test_library_of_another_mpi_library_says_so(self) -> None:
        mpis = list(mpi_programs.LAUNCHERS)
        for mpi, other in zip(mpis, reversed(mpis), strict=True):
            with self.subTest(mpi=mpi):
                library = self.build(other).folder / 'libvhpcwait.so'
                programs = self.build(mpi, 'barriers.c')
                found = subprocess.run(
                    programs.words('barriers.c', RANKS, '0.1', '200'),
                    env=programs.environment(None, LD_PRELOAD=str(library)),
                    capture_output=True,
                    text=True,
                )
                self.assertNotEqual(0, found.returncode)
                self.assertIn('build with its mpicc', found.stderr)

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
