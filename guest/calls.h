/* SPDX-FileCopyrightText: nova-vhpc developers
 * SPDX-License-Identifier: Apache-2.0
 *
 * How a call of MPI is replaced. */
#ifndef VHPC_CALLS_H
#define VHPC_CALLS_H

#include <mpi.h>

#include "process.h"

/* Return a function of the MPI library, or an object; abort if there is none. */
void *vhpc_own(const char *name);
void *vhpc_object(const char *name);

/* Open MPI's handles are objects, which programs without MPI do not have, and Python
 * loads late: they are looked up, not linked. */
#ifdef OPEN_MPI
#define OBJECT(type, name)                                                          \
    ({                                                                              \
        static void *found_;                                                        \
        if (!found_)                                                                \
            found_ = vhpc_object(#name);                                             \
        (type) found_;                                                              \
    })
#undef MPI_COMM_WORLD
#undef MPI_WIN_NULL
#undef MPI_MESSAGE_NO_PROC
#undef MPI_PACKED
#undef MPI_DATATYPE_NULL
#define MPI_COMM_WORLD OBJECT(MPI_Comm, ompi_mpi_comm_world)
#define MPI_WIN_NULL OBJECT(MPI_Win, ompi_mpi_win_null)
#define MPI_MESSAGE_NO_PROC OBJECT(MPI_Message, ompi_message_no_proc)
#define MPI_PACKED OBJECT(MPI_Datatype, ompi_mpi_packed)
#define MPI_DATATYPE_NULL OBJECT(MPI_Datatype, ompi_mpi_datatype_null)
#endif

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
