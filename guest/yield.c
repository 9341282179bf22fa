/* SPDX-FileCopyrightText: nova-vhpc developers
 * SPDX-License-Identifier: Apache-2.0
 *
 * sched_yield() that naps: for loops that cannot be replaced, inside of Open MPI, UCX or
 * an OpenMP library, and that yield while they wait.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "process.h"

#define RUN_NS 20000 /* yields that are farther apart are two waits */

int sched_yield(void)
{
    static __thread struct vhpc_wait wait;
    int64_t now_ns = vhpc_now();
    int status;

    if (now_ns - wait.last_ns > RUN_NS)
        vhpc_begin(&wait, 0);
    wait.endless = 1;
    status = (int)syscall(SYS_sched_yield);
    vhpc_polled(&wait, now_ns);
    return status;
}

__attribute__((destructor)) static void end(void)
{
    vhpc_report();
}
