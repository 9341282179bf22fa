/* SPDX-FileCopyrightText: nova-vhpc developers
 * SPDX-License-Identifier: Apache-2.0
 *
 * MPI's blocking calls, made of their nonblocking twins and a poll that may nap.
 *
 * Loaded before an MPI library (LD_PRELOAD, or linked before it). Both MPI_X and
 * PMPI_X are replaced: Open MPI's Fortran bindings and tools that measure call PMPI_X.
 * The library's own functions are what RTLD_NEXT finds.
 *
 * A nonblocking collective does not match a blocking one, so all ranks of a program
 * must load this library, and each call here always takes the same way.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>

#include "calls.h"

#ifdef OPEN_MPI
#define FOREIGN(symbol) (!(symbol))
#define FAMILY "Open MPI"
#else
#define FOREIGN(symbol) (symbol)
#define FAMILY "MPICH"
#endif

/* Return a symbol of the library that was loaded after this one, or that was loaded
 * for some module only, as Python does. */
static void *look(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name), *all, *object;
    struct link_map *map = 0;

    if (found || !(all = dlopen(0, RTLD_LAZY)))
        return found;
    for (dlinfo(all, RTLD_DI_LINKMAP, &map); map && !found; map = map->l_next) {
        object = *map->l_name ? dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD) : 0;
        if (!object)
            continue;
        found = dlsym(object, name);
        if (found == dlsym(RTLD_DEFAULT, name)) /* This library's own. */
            found = 0;
        dlclose(object);
    }
    dlclose(all);
    return found;
}

void *vhpc_own(const char *name)
{
    void *found = look(name);

    /* Its handles mean something else. */
    if (FOREIGN(look("ompi_mpi_comm_world")))
        fprintf(stderr, "nova-vhpc-wait: built with " FAMILY
                        ", but the program uses another MPI library; unset LD_PRELOAD "
                        "or build with its mpicc\n");
    else if (found)
        return found;
    else
        fprintf(stderr, "nova-vhpc-wait: no MPI library with %s is loaded\n", name);
    abort();
}

void *vhpc_object(const char *name)
{
    /* A program that is linked with the library has a copy, which both use. */
    void *found = dlsym(RTLD_DEFAULT, name);

    return found ? found : vhpc_own(name);
}

int vhpc_finish(MPI_Request *request, MPI_Status *status, int64_t bytes)
{
    POLL(bytes, OWN(Test)(request, &done, status));
}

/* Completion. */

BOTH(Wait, (MPI_Request * request, MPI_Status *status))
{
    return vhpc_finish(request, status, -1);
}

/* Each poll of one request lets all others progress, too. MPI_Testall of MPICH 4.0
 * fails for persistent collectives. */
BOTH(Waitall, (int count, MPI_Request requests[], MPI_Status statuses[]))
{
    MPI_Status *status = MPI_STATUS_IGNORE;
    int failed = 0, ended, i, j;

    for (i = 0; i < count; i++) {
        if (statuses != MPI_STATUSES_IGNORE)
            status = &statuses[i];
        ended = vhpc_finish(&requests[i], status, -1);
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

/* Calls without counts. */

BOTH(Probe, (int rank, int tag, MPI_Comm comm, MPI_Status *status))
{
    POLL(0, OWN(Iprobe)(rank, tag, comm, &done, status));
}

BOTH(Mprobe,
     (int rank, int tag, MPI_Comm comm, MPI_Message *message, MPI_Status *status))
{
    POLL(0, OWN(Improbe)(rank, tag, comm, &done, message, status));
}

BOTH(Barrier, (MPI_Comm comm))
{
    BEGUN(0, OWN(Ibarrier)(comm, &request));
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
        vhpc_finish(&request, MPI_STATUS_IGNORE, 0);
    vhpc_report();
    return OWN(Finalize)();
}

/* Calls with counts. */

static int64_t size_of(MPI_Count count, MPI_Datatype type)
{
    MPI_Count size;

    if (type == MPI_DATATYPE_NULL || OWN(Type_size_x)(type, &size) != MPI_SUCCESS)
        return -1;
    return (int64_t)(count * size);
}

/* Complete a receive and a send; the receive's status is the caller's. */
static int finish_pair(MPI_Request *receive, MPI_Request *send, MPI_Status *status,
                       int64_t bytes)
{
    int received = vhpc_finish(receive, status, bytes);
    int sent = vhpc_finish(send, MPI_STATUS_IGNORE, bytes);

    return received != MPI_SUCCESS ? received : sent;
}

#define KIND(name) name
#define COUNT int
#define OFFSET int
#include "counted.h"
#if MPI_VERSION >= 4
#undef KIND
#undef COUNT
#undef OFFSET
#define KIND(name) name##_c
#define COUNT MPI_Count
#define OFFSET MPI_Aint
#include "counted.h"
#endif
