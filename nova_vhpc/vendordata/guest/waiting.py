# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What makes programs nap, or spin, while they wait. Pure.

Part of the program that runs in guests (:mod:`.script`): Python 3.6 and its
standard library.

Every mode sets the same variables: one that is chosen later leaves
nothing of an earlier one in force. Tried with libgomp 12, libomp 14, Open MPI
4.1.4, MPICH 4.0.2 and Intel MPI 2021.19.
"""

import shlex

WAIT_MODES = ('auto', 'passive', 'active')
"""Values of ``vhpc:wait`` and of ``VHPC_WAIT``."""

LIBRARY = '/usr/local/lib/libvhpcwait.so'
"""Where guests may have the library that lets MPI calls nap."""

_FOR_ALL = {
    # libgomp spins so many times, about 0.1 ms, and libomp 1 ms, the least
    # that all of its versions know beside 0.
    'auto': {
        'VHPC_WAIT': 'auto',
        'OMP_WAIT_POLICY': 'passive',
        'GOMP_SPINCOUNT': '10000',
        'KMP_BLOCKTIME': '1',
    },
    'passive': {
        'VHPC_WAIT': 'passive',
        'OMP_WAIT_POLICY': 'passive',
        'GOMP_SPINCOUNT': '0',
        'KMP_BLOCKTIME': '0',
    },
    'active': {
        'VHPC_WAIT': 'active',
        'OMP_WAIT_POLICY': 'active',
        'GOMP_SPINCOUNT': 'infinite',
        'KMP_BLOCKTIME': 'infinite',
    },
}

_YIELD_WHEN_IDLE = {'auto': '1', 'passive': '1', 'active': '0'}

# With I_MPI_WAIT_MODE=1 alone it calls sched_yield(); a vCPU is left only by
# naps, of I_MPI_THREAD_SLEEP microseconds (of 2 s that a rank waited, it used
# 2.0, 1.9 and 0.2 s of CPU time without, with the one, and with both).
_INTEL = {
    'auto': {
        'I_MPI_WAIT_MODE': '1',
        'I_MPI_THREAD_YIELD': '2',
        'I_MPI_THREAD_SLEEP': '50',
    },
    'passive': {
        'I_MPI_WAIT_MODE': '1',
        'I_MPI_THREAD_YIELD': '3',
        'I_MPI_THREAD_SLEEP': '50',
    },
    'active': {
        'I_MPI_WAIT_MODE': '0',
        'I_MPI_THREAD_YIELD': '0',
        'I_MPI_THREAD_SLEEP': '50',
    },
}


def wait_environment(mode: str) -> 'dict[str, str]':
    """Return the variables for programs of any library and launcher.

    :param mode: one of :data:`WAIT_MODES`.
    """
    return dict(
        _FOR_ALL[mode],
        OMPI_MCA_mpi_yield_when_idle=_YIELD_WHEN_IDLE[mode],
        **_INTEL[mode],
    )


def openmpi_wait_flags(mode: str, others: 'dict[str, str]') -> 'list[str]':
    """Return the flags of Open MPI's mpirun.

    :param others: variables that programs get beside those for waiting.
    """
    flags = ['--mca', 'mpi_yield_when_idle', _YIELD_WHEN_IDLE[mode]]
    for name, value in dict(_FOR_ALL[mode], **others).items():
        flags += ['-x', f'{name}={value}']
    return flags


def mpich_wait_flags(mode: str, others: 'dict[str, str]') -> 'list[str]':
    """Return the flags of MPICH's mpiexec (Hydra)."""
    return _genv(dict(_FOR_ALL[mode], **others))


def intel_wait_flags(mode: str, others: 'dict[str, str]') -> 'list[str]':
    """Return the flags of Intel MPI's mpiexec."""
    return _genv(dict(dict(_FOR_ALL[mode], **_INTEL[mode]), **others))


def slurm_wait_flags(mode: str, others: 'dict[str, str]') -> 'list[str]':
    """Return the flag of Slurm's srun, for programs of any library."""
    pairs = _pairs(dict(wait_environment(mode), **others))
    return ['--export=' + ','.join(['ALL', *pairs])]


def shell_lines(variables: 'dict[str, str]') -> str:
    """Return lines for ``eval`` of a shell that set variables."""
    return ''.join(
        f'export {name}={shlex.quote(value)}\n'
        for name, value in variables.items()
    )


WAIT_FLAGS = {
    'openmpi': openmpi_wait_flags,
    'mpich': mpich_wait_flags,
    'intel': intel_wait_flags,
    'slurm': slurm_wait_flags,
}
"""Flags by the name of the launcher."""


def _genv(variables: 'dict[str, str]') -> 'list[str]':
    return [
        word
        for name, value in variables.items()
        for word in ('-genv', name, value)
    ]


def _pairs(variables: 'dict[str, str]') -> 'list[str]':
    return [f'{name}={value}' for name, value in variables.items()]
