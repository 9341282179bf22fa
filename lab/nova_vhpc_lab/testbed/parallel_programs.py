# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Build what guests need to run programs of real MPI and OpenMP libraries.

The libraries are this machine's: MPICH, Open MPI and GCC's libgomp, with
launchers, components and all shared libraries that these need. The waiting
library of ``guest/`` is built for both MPI libraries.
"""

import hashlib
import importlib.resources
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from nova_vhpc_lab.testbed import errors, mpi_programs, toolchain

LIBRARIES = ('mpich', 'openmpi', 'openmp')
"""Workloads of a guest that run such a program; see ``programs/launch.c``."""

MEMORY_MIB = 320
"""Memory of such a guest: the libraries take 60 MiB, twice while it boots."""

LAUNCHERS = ('mpiexec.hydra', 'hydra_pmi_proxy', 'orterun')

_SOURCES = ('parallel.c', 'vhpc.h')

_OTHER_NETWORKS = re.compile(
    r'lib(fabric|ibverbs|psm2|psm_infinipath|ucp)\.so'
)
"""Libraries of network devices that the guests do not have."""


def digest() -> str:
    """Return what identifies the programs: their sources and launchers.

    :raises ImageError: a launcher is not installed.
    """
    package = importlib.resources.files('nova_vhpc_lab.testbed.programs')
    found = hashlib.sha256()
    for name in _SOURCES:
        found.update((package / name).read_bytes())
    for path in sorted(mpi_programs.GUEST.glob('*.[ch]')):
        found.update(path.read_bytes())
    for path in [
        Path(__file__),
        *(Path(toolchain.need(name)) for name in LAUNCHERS),
    ]:
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def build(root: Path, scratch: Path) -> None:
    """Write the programs and all files that they need below a directory.

    :param root: root directory of the guests.
    :param scratch: directory for temporary files.
    :raises ImageError: a compiler or library is missing or fails.
    """
    binaries, libraries = root / 'bin', root / 'lib'
    for directory in (binaries, libraries):
        directory.mkdir(parents=True, exist_ok=True)
    package = importlib.resources.files('nova_vhpc_lab.testbed.programs')
    for name in _SOURCES:
        (scratch / name).write_bytes((package / name).read_bytes())
    source = str(scratch / 'parallel.c')
    made = []
    for library in LIBRARIES:
        program = binaries / f'parallel-{library}'
        compiler = (
            ('gcc', '-fopenmp')
            if library == 'openmp'
            else (f'mpicc.{library}',)
        )
        toolchain.run_tool(
            *(*compiler, '-std=gnu11', '-O2', '-Wall'),
            *('-o', str(program), source),
        )
        made.append(program)
        if library in mpi_programs.LAUNCHERS:
            mpi_programs.Programs.build(library, scratch / library)
            preload = libraries / f'libvhpcwait-{library}.so'
            shutil.copy(scratch / library / 'libvhpcwait.so', preload)
            made.append(preload)
    for name in LAUNCHERS:
        shutil.copy(toolchain.need(name), binaries)
        made.append(binaries / name)
    for path in _components():
        _copy(path, root)
        made.append(path)
    for path in sorted(_needed(made)):
        _copy(path, root)


def _components() -> list[Path]:
    """Return Open MPI's components, but those of other networks."""
    answer = toolchain.run_tool(
        *('ompi_info', '--path', 'pkglibdir', '--parsable')
    )
    folder = Path(answer.rpartition(':')[2].strip())
    found = [
        path
        for path in sorted(folder.glob('mca_*.so'))
        if not _OTHER_NETWORKS.search(toolchain.run_tool('ldd', str(path)))
    ]
    if not found:
        raise errors.ImageError(f'no components of Open MPI in {folder}')
    return found


def _needed(files: Iterable[Path]) -> set[Path]:
    """Return the shared libraries that files need, as ``ldd`` finds them."""
    output = toolchain.run_tool('ldd', *map(str, files))
    return {Path(path) for path in re.findall(r'(/\S+) \(0x', output)}


def _copy(path: Path, root: Path) -> None:
    target = root / str(path).lstrip(os.sep)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, target)
