/* SPDX-FileCopyrightText: nova-vhpc developers
 * SPDX-License-Identifier: Apache-2.0
 *
 * The calls that take counts. Included twice: with COUNT int, and as MPI_X_c with
 * COUNT MPI_Count. KIND(name) is the name, OFFSET the type of displacements and units.
 */

/* Messages. */

BOTH(KIND(Send), (const void *buffer, COUNT count, MPI_Datatype type, int rank,
                  int tag, MPI_Comm comm))
{
    BEGUN(size_of(count, type),
          OWN(KIND(Isend))(buffer, count, type, rank, tag, comm, &request));
}

BOTH(KIND(Ssend), (const void *buffer, COUNT count, MPI_Datatype type, int rank,
                   int tag, MPI_Comm comm))
{
    BEGUN(size_of(count, type),
          OWN(KIND(Issend))(buffer, count, type, rank, tag, comm, &request));
}

BOTH(KIND(Rsend), (const void *buffer, COUNT count, MPI_Datatype type, int rank,
                   int tag, MPI_Comm comm))
{
    BEGUN(size_of(count, type),
          OWN(KIND(Irsend))(buffer, count, type, rank, tag, comm, &request));
}

BOTH(KIND(Recv), (void *buffer, COUNT count, MPI_Datatype type, int rank, int tag,
                  MPI_Comm comm, MPI_Status *status))
{
    MPI_Request request;
    int started;

    /* MPICH 4.0 loses MPI_PROC_NULL in the status of MPI_Irecv. */
    if (rank == MPI_PROC_NULL)
        return OWN(KIND(Recv))(buffer, count, type, rank, tag, comm, status);
    started = OWN(KIND(Irecv))(buffer, count, type, rank, tag, comm, &request);

    if (started != MPI_SUCCESS)
        return started;
    return vhpc_finish(&request, status, size_of(count, type));
}

BOTH(KIND(Sendrecv), (const void *out, COUNT out_count, MPI_Datatype out_type, int to,
                      int out_tag, void *in, COUNT in_count, MPI_Datatype in_type,
                      int from, int in_tag, MPI_Comm comm, MPI_Status *status))
{
    MPI_Request send, receive;
    int started;

    if (from == MPI_PROC_NULL) {
        started = KIND(MPI_Send)(out, out_count, out_type, to, out_tag, comm);
        return started != MPI_SUCCESS ? started
                                      : OWN(KIND(Recv))(in, in_count, in_type, from,
                                                        in_tag, comm, status);
    }
    started = OWN(KIND(Irecv))(in, in_count, in_type, from, in_tag, comm, &receive);
    if (started != MPI_SUCCESS)
        return started;
    started = OWN(KIND(Isend))(out, out_count, out_type, to, out_tag, comm, &send);
    if (started != MPI_SUCCESS) {
        OWN(Cancel)(&receive);
        vhpc_finish(&receive, MPI_STATUS_IGNORE, 0);
        return started;
    }
    return finish_pair(&receive, &send, status, size_of(in_count, in_type));
}

BOTH(KIND(Sendrecv_replace),
     (void *buffer, COUNT count, MPI_Datatype type, int to, int out_tag, int from,
      int in_tag, MPI_Comm comm, MPI_Status *status))
{
    MPI_Request send, receive;
    COUNT size, length = 0;
    void *packed;
    int ended;

    ended = OWN(KIND(Pack_size))(count, type, comm, &size);
    if (ended != MPI_SUCCESS)
        return ended;
    packed = malloc((size_t)(size > 0 ? size : 1));
    if (!packed)
        return OWN(KIND(Sendrecv_replace))(buffer, count, type, to, out_tag, from,
                                           in_tag, comm, status);
    ended = to == MPI_PROC_NULL
                ? MPI_SUCCESS
                : OWN(KIND(Pack))(buffer, count, type, packed, size, &length, comm);
    if (ended == MPI_SUCCESS)
        ended = OWN(KIND(Isend))(packed, length, MPI_PACKED, to, out_tag, comm, &send);
    if (ended == MPI_SUCCESS) {
        ended =
            from == MPI_PROC_NULL
                ? OWN(KIND(Recv))(buffer, count, type, from, in_tag, comm, status)
                : OWN(KIND(Irecv))(buffer, count, type, from, in_tag, comm, &receive);
        if (ended == MPI_SUCCESS && from != MPI_PROC_NULL)
            ended = finish_pair(&receive, &send, status, size_of(count, type));
        else
            vhpc_finish(&send, MPI_STATUS_IGNORE, 0);
    }
    free(packed);
    return ended;
}

BOTH(KIND(Mrecv), (void *buffer, COUNT count, MPI_Datatype type, MPI_Message *message,
                   MPI_Status *status))
{
    MPI_Request request;
    int started;

    if (*message == MPI_MESSAGE_NO_PROC)
        return OWN(KIND(Mrecv))(buffer, count, type, message, status);
    started = OWN(KIND(Imrecv))(buffer, count, type, message, &request);
    if (started != MPI_SUCCESS)
        return started;
    return vhpc_finish(&request, status, size_of(count, type));
}

/* Collectives. */

BOTH(KIND(Bcast),
     (void *buffer, COUNT count, MPI_Datatype type, int root, MPI_Comm comm))
{
    BEGUN(size_of(count, type),
          OWN(KIND(Ibcast))(buffer, count, type, root, comm, &request));
}

BOTH(KIND(Reduce), (const void *out, void *in, COUNT count, MPI_Datatype type,
                    MPI_Op op, int root, MPI_Comm comm))
{
    BEGUN(size_of(count, type),
          OWN(KIND(Ireduce))(out, in, count, type, op, root, comm, &request));
}

BOTH(KIND(Allreduce), (const void *out, void *in, COUNT count, MPI_Datatype type,
                       MPI_Op op, MPI_Comm comm))
{
    BEGUN(size_of(count, type),
          OWN(KIND(Iallreduce))(out, in, count, type, op, comm, &request));
}

BOTH(KIND(Gather), (const void *out, COUNT out_count, MPI_Datatype out_type, void *in,
                    COUNT in_count, MPI_Datatype in_type, int root, MPI_Comm comm))
{
    BEGUN(-1, OWN(KIND(Igather))(out, out_count, out_type, in, in_count, in_type, root,
                                 comm, &request));
}

BOTH(KIND(Gatherv), (const void *out, COUNT out_count, MPI_Datatype out_type, void *in,
                     const COUNT in_counts[], const OFFSET offsets[],
                     MPI_Datatype in_type, int root, MPI_Comm comm))
{
    BEGUN(-1, OWN(KIND(Igatherv))(out, out_count, out_type, in, in_counts, offsets,
                                  in_type, root, comm, &request));
}

BOTH(KIND(Scatter), (const void *out, COUNT out_count, MPI_Datatype out_type, void *in,
                     COUNT in_count, MPI_Datatype in_type, int root, MPI_Comm comm))
{
    BEGUN(-1, OWN(KIND(Iscatter))(out, out_count, out_type, in, in_count, in_type,
                                  root, comm, &request));
}

BOTH(KIND(Scatterv), (const void *out, const COUNT out_counts[],
                      const OFFSET offsets[], MPI_Datatype out_type, void *in,
                      COUNT in_count, MPI_Datatype in_type, int root, MPI_Comm comm))
{
    BEGUN(-1, OWN(KIND(Iscatterv))(out, out_counts, offsets, out_type, in, in_count,
                                   in_type, root, comm, &request));
}

BOTH(KIND(Allgather), (const void *out, COUNT out_count, MPI_Datatype out_type,
                       void *in, COUNT in_count, MPI_Datatype in_type, MPI_Comm comm))
{
    BEGUN(-1, OWN(KIND(Iallgather))(out, out_count, out_type, in, in_count, in_type,
                                    comm, &request));
}

BOTH(KIND(Allgatherv), (const void *out, COUNT out_count, MPI_Datatype out_type,
                        void *in, const COUNT in_counts[], const OFFSET offsets[],
                        MPI_Datatype in_type, MPI_Comm comm))
{
    BEGUN(-1, OWN(KIND(Iallgatherv))(out, out_count, out_type, in, in_counts, offsets,
                                     in_type, comm, &request));
}

BOTH(KIND(Alltoall), (const void *out, COUNT out_count, MPI_Datatype out_type,
                      void *in, COUNT in_count, MPI_Datatype in_type, MPI_Comm comm))
{
    BEGUN(-1, OWN(KIND(Ialltoall))(out, out_count, out_type, in, in_count, in_type,
                                   comm, &request));
}

BOTH(KIND(Alltoallv),
     (const void *out, const COUNT out_counts[], const OFFSET out_offsets[],
      MPI_Datatype out_type, void *in, const COUNT in_counts[],
      const OFFSET in_offsets[], MPI_Datatype in_type, MPI_Comm comm))
{
    BEGUN(-1, OWN(KIND(Ialltoallv))(out, out_counts, out_offsets, out_type, in,
                                    in_counts, in_offsets, in_type, comm, &request));
}

BOTH(KIND(Alltoallw),
     (const void *out, const COUNT out_counts[], const OFFSET out_offsets[],
      const MPI_Datatype out_types[], void *in, const COUNT in_counts[],
      const OFFSET in_offsets[], const MPI_Datatype in_types[], MPI_Comm comm))
{
    BEGUN(-1, OWN(KIND(Ialltoallw))(out, out_counts, out_offsets, out_types, in,
                                    in_counts, in_offsets, in_types, comm, &request));
}

BOTH(KIND(Scan), (const void *out, void *in, COUNT count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm))
{
    BEGUN(size_of(count, type),
          OWN(KIND(Iscan))(out, in, count, type, op, comm, &request));
}

BOTH(KIND(Exscan), (const void *out, void *in, COUNT count, MPI_Datatype type,
                    MPI_Op op, MPI_Comm comm))
{
    BEGUN(size_of(count, type),
          OWN(KIND(Iexscan))(out, in, count, type, op, comm, &request));
}

BOTH(KIND(Reduce_scatter), (const void *out, void *in, const COUNT in_counts[],
                            MPI_Datatype type, MPI_Op op, MPI_Comm comm))
{
    BEGUN(-1,
          OWN(KIND(Ireduce_scatter))(out, in, in_counts, type, op, comm, &request));
}

BOTH(KIND(Reduce_scatter_block), (const void *out, void *in, COUNT in_count,
                                  MPI_Datatype type, MPI_Op op, MPI_Comm comm))
{
    BEGUN(-1, OWN(KIND(Ireduce_scatter_block))(out, in, in_count, type, op, comm,
                                               &request));
}

BOTH(KIND(Neighbor_allgather),
     (const void *out, COUNT out_count, MPI_Datatype out_type, void *in,
      COUNT in_count, MPI_Datatype in_type, MPI_Comm comm))
{
    BEGUN(-1, OWN(KIND(Ineighbor_allgather))(out, out_count, out_type, in, in_count,
                                             in_type, comm, &request));
}

BOTH(KIND(Neighbor_allgatherv),
     (const void *out, COUNT out_count, MPI_Datatype out_type, void *in,
      const COUNT in_counts[], const OFFSET offsets[], MPI_Datatype in_type,
      MPI_Comm comm))
{
    BEGUN(-1, OWN(KIND(Ineighbor_allgatherv))(out, out_count, out_type, in, in_counts,
                                              offsets, in_type, comm, &request));
}

BOTH(KIND(Neighbor_alltoall),
     (const void *out, COUNT out_count, MPI_Datatype out_type, void *in,
      COUNT in_count, MPI_Datatype in_type, MPI_Comm comm))
{
    BEGUN(-1, OWN(KIND(Ineighbor_alltoall))(out, out_count, out_type, in, in_count,
                                            in_type, comm, &request));
}

BOTH(KIND(Neighbor_alltoallv),
     (const void *out, const COUNT out_counts[], const OFFSET out_offsets[],
      MPI_Datatype out_type, void *in, const COUNT in_counts[],
      const OFFSET in_offsets[], MPI_Datatype in_type, MPI_Comm comm))
{
    BEGUN(-1, OWN(KIND(Ineighbor_alltoallv))(out, out_counts, out_offsets, out_type,
                                             in, in_counts, in_offsets, in_type, comm,
                                             &request));
}

BOTH(KIND(Neighbor_alltoallw),
     (const void *out, const COUNT out_counts[], const MPI_Aint out_offsets[],
      const MPI_Datatype out_types[], void *in, const COUNT in_counts[],
      const MPI_Aint in_offsets[], const MPI_Datatype in_types[], MPI_Comm comm))
{
    BEGUN(-1, OWN(KIND(Ineighbor_alltoallw))(out, out_counts, out_offsets, out_types,
                                             in, in_counts, in_offsets, in_types, comm,
                                             &request));
}

/* Windows. */

BOTH(KIND(Win_create), (void *base, MPI_Aint size, OFFSET unit, MPI_Info info,
                        MPI_Comm comm, MPI_Win *win))
{
    return vhpc_window(OWN(KIND(Win_create))(base, size, unit, info, comm, win), comm,
                       win);
}

BOTH(KIND(Win_allocate), (MPI_Aint size, OFFSET unit, MPI_Info info, MPI_Comm comm,
                          void *base, MPI_Win *win))
{
    return vhpc_window(OWN(KIND(Win_allocate))(size, unit, info, comm, base, win),
                       comm, win);
}

BOTH(KIND(Win_allocate_shared), (MPI_Aint size, OFFSET unit, MPI_Info info,
                                 MPI_Comm comm, void *base, MPI_Win *win))
{
    return vhpc_window(
        OWN(KIND(Win_allocate_shared))(size, unit, info, comm, base, win), comm, win);
}
