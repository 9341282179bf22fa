/* SPDX-FileCopyrightText: nova-vhpc developers
 * SPDX-License-Identifier: Apache-2.0
 *
 * Windows: wait for the others before the library does, where a call ends after them.
 *
 * A window shows nobody its communicator, so it gets another one of the same ranks,
 * kept as an attribute. MPI_Win_lock, _unlock, _flush, _start and _complete have no
 * form that returns at once, and wait for no rank's computing but for the transport:
 * they stay.
 */
#include <pthread.h>
#include <stdlib.h>

#include "calls.h"

#define WINDOWS 256 /* at most; MPICH has 2048 communicators and windows in all */

static int key = MPI_KEYVAL_INVALID;
static int windows;

static int copy(MPI_Win window, int number, void *extra, void *from, void *to,
                int *flag)
{
    (void)window, (void)number, (void)extra, (void)from, (void)to;
    *flag = 0;
    return MPI_SUCCESS;
}

static int drop(MPI_Win window, int number, void *value, void *extra)
{
    (void)window, (void)number, (void)value, (void)extra;
    return MPI_SUCCESS;
}

static void set_up(void)
{
    OWN(Win_create_keyval)(copy, drop, &key, 0);
}

static MPI_Comm *ranks_of(MPI_Win window)
{
    MPI_Comm *ranks;
    int found;

    if (key == MPI_KEYVAL_INVALID || window == MPI_WIN_NULL ||
        OWN(Win_get_attr)(window, key, &ranks, &found) != MPI_SUCCESS || !found)
        return 0;
    return ranks;
}

int vhpc_window(int made, MPI_Comm comm, const MPI_Win *window)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    MPI_Comm *ranks;
    int few, size, all;

    if (made != MPI_SUCCESS)
        return made;
    pthread_once(&once, set_up);
    ranks = malloc(sizeof *ranks);
    few = ranks && __atomic_add_fetch(&windows, 1, __ATOMIC_RELAXED) <= WINDOWS;
    /* Who has too many takes no part, and all others see that it is missing. */
    if (OWN(Comm_split)(comm, few ? 0 : MPI_UNDEFINED, 0, ranks) == MPI_SUCCESS &&
        few) {
        OWN(Comm_size)(comm, &all);
        OWN(Comm_size)(*ranks, &size);
        if (size == all && OWN(Win_set_attr)(*window, key, ranks) == MPI_SUCCESS)
            return made;
        OWN(Comm_free)(ranks);
    }
    if (ranks)
        __atomic_sub_fetch(&windows, 1, __ATOMIC_RELAXED);
    free(ranks);
    return made;
}

BOTH(Win_create_dynamic, (MPI_Info info, MPI_Comm comm, MPI_Win *window))
{
    return vhpc_window(OWN(Win_create_dynamic)(info, comm, window), comm, window);
}

/* Wait until all ranks have come. */
static void gather(MPI_Comm ranks)
{
    MPI_Request request;

    if (OWN(Ibarrier)(ranks, &request) == MPI_SUCCESS)
        vhpc_finish(&request, MPI_STATUS_IGNORE, 0);
}

BOTH(Win_fence, (int assertions, MPI_Win window))
{
    /* A fence that ends no accesses may return before the others come. Either all
     * ranks say so or none. */
    MPI_Comm *ranks = assertions & MPI_MODE_NOPRECEDE ? 0 : ranks_of(window);

    if (ranks)
        gather(*ranks);
    return OWN(Win_fence)(assertions, window);
}

BOTH(Win_free, (MPI_Win * window))
{
    MPI_Comm *ranks = ranks_of(*window);
    int ended;

    if (ranks)
        gather(*ranks);
    ended = OWN(Win_free)(window);
    if (ranks && ended == MPI_SUCCESS) {
        OWN(Comm_free)(ranks);
        free(ranks);
        __atomic_sub_fetch(&windows, 1, __ATOMIC_RELAXED);
    }
    return ended;
}

BOTH(Win_wait, (MPI_Win window))
{
    POLL(0, OWN(Win_test)(window, &done));
}
