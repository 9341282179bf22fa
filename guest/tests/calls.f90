! SPDX-FileCopyrightText: nova-vhpc developers
! SPDX-License-Identifier: Apache-2.0
!
! Blocking calls of the bindings of Fortran 2008.
program calls
  use mpi_f08
  implicit none
  integer :: rank, ranks, i, in, total, all(64)
  type(MPI_Status) :: status
  type(MPI_Request) :: requests(2)

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  call MPI_Barrier(MPI_COMM_WORLD)
  do i = 1, 20
     call MPI_Sendrecv(rank, 1, MPI_INTEGER, mod(rank + 1, ranks), i, in, 1, &
          MPI_INTEGER, mod(rank + ranks - 1, ranks), i, MPI_COMM_WORLD, status)
     call MPI_Irecv(in, 1, MPI_INTEGER, mod(rank + 1, ranks), i, MPI_COMM_WORLD, &
          requests(1))
     call MPI_Isend(rank, 1, MPI_INTEGER, mod(rank + ranks - 1, ranks), i, &
          MPI_COMM_WORLD, requests(2))
     call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
  end do
  total = rank + in
  call MPI_Allreduce(MPI_IN_PLACE, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
  all(1:ranks) = 0
  all(rank + 1) = status%MPI_SOURCE
  call MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, 1, MPI_INTEGER, &
       MPI_COMM_WORLD)
  if (rank == 0) print *, 'total', total, all(1:ranks)
  call MPI_Finalize()
end program calls
