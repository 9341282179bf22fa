# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The waiting library and programs of ``guest/tests``, built for one MPI."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from nova_vhpc_lab.testbed import toolchain

GUEST = Path(__file__).parents[3] / 'guest'
"""Folder of the waiting library in the repository."""

LAUNCHERS = {
    'mpich': ('mpirun.mpich', '-bind-to', 'none'),
    'openmpi': (
        *('mpirun.openmpi', '--allow-run-as-root', '--oversubscribe'),
        *('--bind-to', 'none', '--mca', 'btl', 'self,vader'),
    ),
}
"""Launcher of each MPI library as Debian and Ubuntu install it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Programs:
    """What was built for one MPI library.

    :ivar mpi: key of :data:`LAUNCHERS`.
    :ivar folder: where the programs and libraries are.
    """

    mpi: str
    folder: Path

    @classmethod
    def build(cls, mpi: str, folder: Path, *sources: str) -> Self:
        """Build the libraries and some programs of ``guest/tests``.

        :param sources: file names, as ``calls.c``, ``calls.f90``.
        :raises ImageError: the compiler is missing or refuses one.
        """
        folder.mkdir(parents=True, exist_ok=True)
        made = cls(mpi, folder)
        toolchain.run_tool(
            *('make', '-C', str(GUEST)),
            *(f'BUILD={folder}', f'MPICC=mpicc.{mpi}'),
        )
        for source in sources:
            compiler = 'mpicc' if source.endswith('.c') else 'mpif90'
            toolchain.run_tool(
                *(f'{compiler}.{mpi}', '-O1', '-o', str(made.program(source))),
                *(str(GUEST / 'tests' / source), '-lpthread'),
            )
        return made

    def program(self, source: str) -> Path:
        """Return the program that was built from a source."""
        return self.folder / source.replace('.', '-')

    def environment(self, library: str | None, **more: str) -> dict[str, str]:
        """Return the environment in which the programs run.

        :param library: ``wait`` or ``yield``; None for none.
        """
        environment = {**os.environ, **more}
        if library is not None:
            path = self.folder / f'libvhpc{library}.so'
            environment['LD_PRELOAD'] = str(path)
        if library == 'yield':
            environment['OMPI_MCA_mpi_yield_when_idle'] = '1'
        return environment

    def words(self, source: str, ranks: int, *words: str) -> list[str]:
        """Return the command that runs a program."""
        return [
            *(*LAUNCHERS[self.mpi], '-n', str(ranks)),
            *(str(self.program(source)), *words),
        ]

    def run(
        self,
        source: str,
        ranks: int,
        words: Sequence[str] = (),
        library: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> str:
        """Run a program; return its output.

        :raises ImageError: it failed.
        """
        return toolchain.run_tool(
            *self.words(source, ranks, *words),
            environment=self.environment(library, **(environment or {})),
        )
