/* SPDX-FileCopyrightText: nova-vhpc developers
 * SPDX-License-Identifier: Apache-2.0
 *
 * How a call of MPI is replaced. */
#ifndef VHPC_CALLS_H
#define VHPC_CALLS_H

#include <mpi.h>

#include "process.h"

/* Programs without MPI, as the launcher and the shells that inherit LD_PRELOAD, must
 * start, too: they have none of Open MPI's objects. */
#ifdef OPEN_MPI
#pragma weak ompi_mpi_comm_world
#pragma weak ompi_mpi_comm_null
#pragma weak ompi_mpi_win_null
#pragma weak ompi_message_no_proc
#pragma weak ompi_mpi_packed
#pragma weak ompi_mpi_datatype_null
#pragma weak OMPI_C_MPI_WIN_NULL_COPY_FN
#pragma weak OMPI_C_MPI_WIN_NULL_DELETE_FN
#endif

void *vhpc_own(const char *name);

/* The MPI library's own function. */
#define OWN(name) OWN_(name)
#define OWN_(name)                                                                  \
    ({                                                                              \
        static __typeof__(&PMPI_##name) found_;                                     \
        if (!found_)                                                                \
            found_ = (__typeof__(&PMPI_##name))vhpc_own("PMPI_" #name);             \
        found_;                                                                     \
    })

/* Define MPI_name and PMPI_name. */
#define BOTH(name, parameters) BOTH_(name, parameters)
#define BOTH_(name, parameters)                                                     \
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
    return vhpc_finish(&request, MPI_STATUS_IGNORE, bytes_)

/* Complete a request. */
int vhpc_finish(MPI_Request *, MPI_Status *, int64_t bytes);

/* Return `made`, what the creation of a window returned, once it is known here. */
int vhpc_window(int made, MPI_Comm comm, const MPI_Win *window);

#endif
