/* SPDX-FileCopyrightText: nova-vhpc developers
 * SPDX-License-Identifier: Apache-2.0
 *
 * MPI's blocking calls, made of their nonblocking twins and a poll that may nap.
 *
 * Loaded before an MPI library (LD_PRELOAD, or linked before it). Both MPI_X and PMPI_X
 * are replaced: Open MPI's Fortran bindings and tools that measure call PMPI_X. The
 * library's own functions are what RTLD_NEXT finds.
 *
 * A nonblocking collective does not match a blocking one, so all ranks of a program must
 * load this library, and each call here always takes the same way.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "process.h"

/* Programs without MPI, as the launcher and the shells that inherit LD_PRELOAD, must
 * start, too: they have none of Open MPI's objects. */
#ifdef OPEN_MPI
#pragma weak ompi_mpi_comm_world
#pragma weak ompi_mpi_packed
#pragma weak ompi_mpi_datatype_null
#endif

static void *own(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);

    if (!found) {
        fprintf(stderr,
                "nova-vhpc-wait: no MPI library with %s is loaded after this one\n",
                name);
        abort();
    }
    return found;
}

/* The MPI library's own function. */
#define OWN(name)                                                                   \
    ({                                                                              \
        static __typeof__(&PMPI_##name) found_;                                     \
        if (!found_)                                                                \
            found_ = (__typeof__(&PMPI_##name))own("PMPI_" #name);                  \
        found_;                                                                     \
    })

/* Define MPI_name and PMPI_name. */
#define BOTH(name, parameters)                                                      \
    int PMPI_##name parameters __attribute__((alias("MPI_" #name)));                \
    int MPI_##name parameters

/* Return from here with the result of a poll that sets `done`. */
#define POLL(bytes_, call)                                                          \
    do {                                                                            \
        struct vhpc_wait wait_;                                                     \
        int done = 0, status_;                                                      \
        vhpc_begin(&wait_, bytes_);                                                 \
        for (;;) {                                                                  \
            int64_t begin_ns_ = vhpc_now();                                         \
            status_ = call;                                                         \
            if (done || status_ != MPI_SUCCESS)                                     \
                return status_;                                                     \
            vhpc_polled(&wait_, begin_ns_);                                         \
        }                                                                           \
    } while (0)

/* A call that begins as `start`, which sets `request`. */
#define BEGUN(bytes_, start)                                                        \
    MPI_Request request;                                                            \
    int started = start;                                                            \
    if (started != MPI_SUCCESS)                                                     \
        return started;                                                             \
    return finish(&request, MPI_STATUS_IGNORE, bytes_)

static int finish(MPI_Request *request, MPI_Status *status, int64_t bytes)
{
    POLL(bytes, OWN(Test)(request, &done, status));
}

static int64_t size_of(int count, MPI_Datatype type)
{
    int size;

    if (type == MPI_DATATYPE_NULL || OWN(Type_size)(type, &size) != MPI_SUCCESS)
        return -1;
    return (int64_t)count * size;
}

/* Completion. */

BOTH(Wait, (MPI_Request *request, MPI_Status *status))
{
    return finish(request, status, -1);
}

/* Each poll of one request lets all others progress, too. MPI_Testall of MPICH 4.0 fails
 * for persistent collectives. */
BOTH(Waitall, (int count, MPI_Request requests[], MPI_Status statuses[]))
{
    MPI_Status *status = MPI_STATUS_IGNORE;
    int failed = 0, ended, i, j;

    for (i = 0; i < count; i++) {
        if (statuses != MPI_STATUSES_IGNORE)
            status = &statuses[i];
        ended = finish(&requests[i], status, -1);
        if (ended != MPI_SUCCESS && !failed) {
            failed = 1;
            for (j = 0; j < i && statuses != MPI_STATUSES_IGNORE; j++)
                statuses[j].MPI_ERROR = MPI_SUCCESS;
        }
        if (failed && statuses != MPI_STATUSES_IGNORE)
            status->MPI_ERROR = ended;
    }
    return failed ? MPI_ERR_IN_STATUS : MPI_SUCCESS;
}

BOTH(Waitany, (int count, MPI_Request requests[], int *index, MPI_Status *status))
{
    POLL(-1, OWN(Testany)(count, requests, index, &done, status));
}

BOTH(Waitsome, (int count, MPI_Request requests[], int *number, int indices[],
                MPI_Status statuses[]))
{
    /* MPI_UNDEFINED: no request is active. */
    POLL(-1, ({
             int some_ = OWN(Testsome)(count, requests, number, indices, statuses);
             done = *number != 0;
             some_;
         }));
}

/* Messages. */

BOTH(Send, (const void *buffer, int count, MPI_Datatype type, int rank, int tag,
            MPI_Comm comm))
{
    BEGUN(size_of(count, type),
          OWN(Isend)(buffer, count, type, rank, tag, comm, &request));
}

BOTH(Ssend, (const void *buffer, int count, MPI_Datatype type, int rank, int tag,
             MPI_Comm comm))
{
    BEGUN(size_of(count, type),
          OWN(Issend)(buffer, count, type, rank, tag, comm, &request));
}

BOTH(Rsend, (const void *buffer, int count, MPI_Datatype type, int rank, int tag,
             MPI_Comm comm))
{
    BEGUN(size_of(count, type),
          OWN(Irsend)(buffer, count, type, rank, tag, comm, &request));
}

BOTH(Recv, (void *buffer, int count, MPI_Datatype type, int rank, int tag,
            MPI_Comm comm, MPI_Status *status))
{
    MPI_Request request;
    int started;

    /* MPICH 4.0 loses MPI_PROC_NULL in the status of MPI_Irecv. */
    if (rank == MPI_PROC_NULL)
        return OWN(Recv)(buffer, count, type, rank, tag, comm, status);
    started = OWN(Irecv)(buffer, count, type, rank, tag, comm, &request);

    if (started != MPI_SUCCESS)
        return started;
    return finish(&request, status, size_of(count, type));
}

/* Complete a receive and a send; the receive's status is the caller's. */
static int finish_pair(MPI_Request *receive, MPI_Request *send, MPI_Status *status,
                       int64_t bytes)
{
    int received = finish(receive, status, bytes);
    int sent = finish(send, MPI_STATUS_IGNORE, bytes);

    return received != MPI_SUCCESS ? received : sent;
}

BOTH(Sendrecv, (const void *out, int out_count, MPI_Datatype out_type, int to,
                int out_tag, void *in, int in_count, MPI_Datatype in_type, int from,
                int in_tag, MPI_Comm comm, MPI_Status *status))
{
    MPI_Request send, receive;
    int started;

    if (from == MPI_PROC_NULL) {
        started = MPI_Send(out, out_count, out_type, to, out_tag, comm);
        return started != MPI_SUCCESS
                   ? started
                   : OWN(Recv)(in, in_count, in_type, from, in_tag, comm, status);
    }
    started = OWN(Irecv)(in, in_count, in_type, from, in_tag, comm, &receive);
    if (started != MPI_SUCCESS)
        return started;
    started = OWN(Isend)(out, out_count, out_type, to, out_tag, comm, &send);
    if (started != MPI_SUCCESS) {
        OWN(Cancel)(&receive);
        finish(&receive, MPI_STATUS_IGNORE, 0);
        return started;
    }
    return finish_pair(&receive, &send, status, size_of(in_count, in_type));
}

BOTH(Sendrecv_replace, (void *buffer, int count, MPI_Datatype type, int to, int out_tag,
                        int from, int in_tag, MPI_Comm comm, MPI_Status *status))
{
    MPI_Request send, receive;
    int size, length = 0, ended;
    void *packed;

    ended = OWN(Pack_size)(count, type, comm, &size);
    if (ended != MPI_SUCCESS)
        return ended;
    packed = malloc((size_t)(size > 0 ? size : 1));
    if (!packed)
        return OWN(Sendrecv_replace)(buffer, count, type, to, out_tag, from, in_tag,
                                     comm, status);
    ended = to == MPI_PROC_NULL
                ? MPI_SUCCESS
                : OWN(Pack)(buffer, count, type, packed, size, &length, comm);
    if (ended == MPI_SUCCESS)
        ended = OWN(Isend)(packed, length, MPI_PACKED, to, out_tag, comm, &send);
    if (ended == MPI_SUCCESS) {
        ended = from == MPI_PROC_NULL
                    ? OWN(Recv)(buffer, count, type, from, in_tag, comm, status)
                    : OWN(Irecv)(buffer, count, type, from, in_tag, comm, &receive);
        if (ended == MPI_SUCCESS && from != MPI_PROC_NULL)
            ended = finish_pair(&receive, &send, status, size_of(count, type));
        else
            finish(&send, MPI_STATUS_IGNORE, 0);
    }
    free(packed);
    return ended;
}

BOTH(Probe, (int rank, int tag, MPI_Comm comm, MPI_Status *status))
{
    POLL(0, OWN(Iprobe)(rank, tag, comm, &done, status));
}

BOTH(Mprobe, (int rank, int tag, MPI_Comm comm, MPI_Message *message,
              MPI_Status *status))
{
    POLL(0, OWN(Improbe)(rank, tag, comm, &done, message, status));
}

/* Collectives. */

BOTH(Barrier, (MPI_Comm comm))
{
    BEGUN(0, OWN(Ibarrier)(comm, &request));
}

BOTH(Bcast, (void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm))
{
    BEGUN(size_of(count, type), OWN(Ibcast)(buffer, count, type, root, comm, &request));
}

BOTH(Reduce, (const void *out, void *in, int count, MPI_Datatype type, MPI_Op op,
              int root, MPI_Comm comm))
{
    BEGUN(size_of(count, type),
          OWN(Ireduce)(out, in, count, type, op, root, comm, &request));
}

BOTH(Allreduce, (const void *out, void *in, int count, MPI_Datatype type, MPI_Op op,
                 MPI_Comm comm))
{
    BEGUN(size_of(count, type),
          OWN(Iallreduce)(out, in, count, type, op, comm, &request));
}

BOTH(Gather, (const void *out, int out_count, MPI_Datatype out_type, void *in,
              int in_count, MPI_Datatype in_type, int root, MPI_Comm comm))
{
    BEGUN(-1, OWN(Igather)(out, out_count, out_type, in, in_count, in_type, root, comm,
                           &request));
}

BOTH(Gatherv, (const void *out, int out_count, MPI_Datatype out_type, void *in,
               const int in_counts[], const int offsets[], MPI_Datatype in_type,
               int root, MPI_Comm comm))
{
    BEGUN(-1, OWN(Igatherv)(out, out_count, out_type, in, in_counts, offsets, in_type,
                            root, comm, &request));
}

BOTH(Scatter, (const void *out, int out_count, MPI_Datatype out_type, void *in,
               int in_count, MPI_Datatype in_type, int root, MPI_Comm comm))
{
    BEGUN(-1, OWN(Iscatter)(out, out_count, out_type, in, in_count, in_type, root, comm,
                            &request));
}

BOTH(Scatterv, (const void *out, const int out_counts[], const int offsets[],
                MPI_Datatype out_type, void *in, int in_count, MPI_Datatype in_type,
                int root, MPI_Comm comm))
{
    BEGUN(-1, OWN(Iscatterv)(out, out_counts, offsets, out_type, in, in_count, in_type,
                             root, comm, &request));
}

BOTH(Allgather, (const void *out, int out_count, MPI_Datatype out_type, void *in,
                 int in_count, MPI_Datatype in_type, MPI_Comm comm))
{
    BEGUN(-1, OWN(Iallgather)(out, out_count, out_type, in, in_count, in_type, comm,
                              &request));
}

BOTH(Allgatherv, (const void *out, int out_count, MPI_Datatype out_type, void *in,
                  const int in_counts[], const int offsets[], MPI_Datatype in_type,
                  MPI_Comm comm))
{
    BEGUN(-1, OWN(Iallgatherv)(out, out_count, out_type, in, in_counts, offsets,
                               in_type, comm, &request));
}

BOTH(Alltoall, (const void *out, int out_count, MPI_Datatype out_type, void *in,
                int in_count, MPI_Datatype in_type, MPI_Comm comm))
{
    BEGUN(-1, OWN(Ialltoall)(out, out_count, out_type, in, in_count, in_type, comm,
                             &request));
}

BOTH(Alltoallv, (const void *out, const int out_counts[], const int out_offsets[],
                 MPI_Datatype out_type, void *in, const int in_counts[],
                 const int in_offsets[], MPI_Datatype in_type, MPI_Comm comm))
{
    BEGUN(-1, OWN(Ialltoallv)(out, out_counts, out_offsets, out_type, in, in_counts,
                              in_offsets, in_type, comm, &request));
}

BOTH(Alltoallw, (const void *out, const int out_counts[], const int out_offsets[],
                 const MPI_Datatype out_types[], void *in, const int in_counts[],
                 const int in_offsets[], const MPI_Datatype in_types[], MPI_Comm comm))
{
    BEGUN(-1, OWN(Ialltoallw)(out, out_counts, out_offsets, out_types, in, in_counts,
                              in_offsets, in_types, comm, &request));
}

BOTH(Scan, (const void *out, void *in, int count, MPI_Datatype type, MPI_Op op,
            MPI_Comm comm))
{
    BEGUN(size_of(count, type),
          OWN(Iscan)(out, in, count, type, op, comm, &request));
}

BOTH(Exscan, (const void *out, void *in, int count, MPI_Datatype type, MPI_Op op,
              MPI_Comm comm))
{
    BEGUN(size_of(count, type),
          OWN(Iexscan)(out, in, count, type, op, comm, &request));
}

BOTH(Reduce_scatter, (const void *out, void *in, const int in_counts[],
                      MPI_Datatype type, MPI_Op op, MPI_Comm comm))
{
    BEGUN(-1, OWN(Ireduce_scatter)(out, in, in_counts, type, op, comm, &request));
}

BOTH(Reduce_scatter_block, (const void *out, void *in, int in_count, MPI_Datatype type,
                            MPI_Op op, MPI_Comm comm))
{
    BEGUN(-1, OWN(Ireduce_scatter_block)(out, in, in_count, type, op, comm, &request));
}

BOTH(Neighbor_allgather, (const void *out, int out_count, MPI_Datatype out_type,
                          void *in, int in_count, MPI_Datatype in_type, MPI_Comm comm))
{
    BEGUN(-1, OWN(Ineighbor_allgather)(out, out_count, out_type, in, in_count, in_type,
                                       comm, &request));
}

BOTH(Neighbor_allgatherv, (const void *out, int out_count, MPI_Datatype out_type,
                           void *in, const int in_counts[], const int offsets[],
                           MPI_Datatype in_type, MPI_Comm comm))
{
    BEGUN(-1, OWN(Ineighbor_allgatherv)(out, out_count, out_type, in, in_counts,
                                        offsets, in_type, comm, &request));
}

BOTH(Neighbor_alltoall, (const void *out, int out_count, MPI_Datatype out_type,
                         void *in, int in_count, MPI_Datatype in_type, MPI_Comm comm))
{
    BEGUN(-1, OWN(Ineighbor_alltoall)(out, out_count, out_type, in, in_count, in_type,
                                      comm, &request));
}

BOTH(Neighbor_alltoallv, (const void *out, const int out_counts[],
                          const int out_offsets[], MPI_Datatype out_type, void *in,
                          const int in_counts[], const int in_offsets[],
                          MPI_Datatype in_type, MPI_Comm comm))
{
    BEGUN(-1, OWN(Ineighbor_alltoallv)(out, out_counts, out_offsets, out_type, in,
                                       in_counts, in_offsets, in_type, comm, &request));
}

BOTH(Neighbor_alltoallw, (const void *out, const int out_counts[],
                          const MPI_Aint out_offsets[], const MPI_Datatype out_types[],
                          void *in, const int in_counts[], const MPI_Aint in_offsets[],
                          const MPI_Datatype in_types[], MPI_Comm comm))
{
    BEGUN(-1, OWN(Ineighbor_alltoallw)(out, out_counts, out_offsets, out_types, in,
                                       in_counts, in_offsets, in_types, comm,
                                       &request));
}

BOTH(Comm_dup, (MPI_Comm comm, MPI_Comm *made))
{
    BEGUN(0, OWN(Comm_idup)(comm, made, &request));
}

/* The last ranks of a program may come seconds later: wait for them here, and not in
 * the library's own loop. */
BOTH(Finalize, (void))
{
    MPI_Request request;

    if (OWN(Ibarrier)(MPI_COMM_WORLD, &request) == MPI_SUCCESS)
        finish(&request, MPI_STATUS_IGNORE, 0);
    vhpc_report();
    return OWN(Finalize)();
}
