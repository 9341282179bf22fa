# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A program of MPI: ranks send to the peers that an argument selects.

Usage: ``python mpi_program.py LIBRARY PEERS BYTES``. The library is loaded by
its name, so that no compiler is needed. Peers: ``local`` are on the same host
(ranks 0 and 1, 2 and 3), ``remote`` on the other one.
"""

import ctypes
import sys

ROUNDS = 3


def main() -> None:
    name, peers, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
    # Open MPI's own plugins need its symbols.
    library = ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
    communicator, byte = _handles(library)
    library.MPI_Init(None, None)
    rank, ranks = ctypes.c_int(), ctypes.c_int()
    library.MPI_Comm_rank(communicator, ctypes.byref(rank))
    library.MPI_Comm_size(communicator, ctypes.byref(ranks))
    peer = rank.value ^ (1 if peers == 'local' else 2)
    counts = (ctypes.c_int * ranks.value)()
    counts[peer] = size
    offsets = (ctypes.c_int * ranks.value)()
    sent = ctypes.create_string_buffer(bytes([rank.value + 1]) * size)
    received = ctypes.create_string_buffer(size)
    _connect(library, communicator, byte, ranks.value)
    for _ in range(ROUNDS):
        library.MPI_Alltoallv(
            sent,
            counts,
            offsets,
            byte,
            received,
            counts,
            offsets,
            byte,
            communicator,
        )
    expected = bytes([peer + 1]) * size
    if received.raw[:size] != expected:
        raise SystemExit(f'rank {rank.value}: wrong data from rank {peer}')
    _connect(library, communicator, byte, ranks.value)
    library.MPI_Finalize()
    if rank.value == 0:
        print(f'{ranks.value} ranks')


def _connect(
    library: ctypes.CDLL,
    communicator: ctypes.c_int | ctypes.c_void_p,
    byte: ctypes.c_int | ctypes.c_void_p,
    ranks: int,
) -> None:
    """Let all ranks exchange bytes until all their connections are set up.

    MPICH 4.0 with UCX 1.13 hangs in MPI_Finalize at times if a connection is
    not: a rank waits there for a peer that no longer answers.
    """
    sent, received = (ctypes.create_string_buffer(ranks) for _ in range(2))
    for _ in range(10):
        library.MPI_Alltoall(sent, 1, byte, received, 1, byte, communicator)


def _handles(
    library: ctypes.CDLL,
) -> tuple[ctypes.c_int | ctypes.c_void_p, ctypes.c_int | ctypes.c_void_p]:
    """Return MPI_COMM_WORLD and MPI_BYTE, by the ABI of the library."""
    if not hasattr(library, 'ompi_mpi_comm_world'):
        # The ABI of MPICH and Intel MPI.
        return ctypes.c_int(0x44000000), ctypes.c_int(0x4C00010D)
    communicator, byte = (
        ctypes.addressof(ctypes.c_char.in_dll(library, symbol))
        for symbol in ('ompi_mpi_comm_world', 'ompi_mpi_byte')
    )
    return ctypes.c_void_p(communicator), ctypes.c_void_p(byte)


if __name__ == '__main__':
    main()
