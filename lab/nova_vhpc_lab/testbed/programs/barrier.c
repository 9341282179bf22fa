// SPDX-FileCopyrightText: nova-vhpc developers
// SPDX-License-Identifier: Apache-2.0

/*
 * Workloads that synchronise all threads of one guest. "barrier" spins and
 * never blocks, like LU's pipelined wavefronts and MPI's busy polling; "block"
 * spins briefly and then sleeps, like OpenMP's passive wait policy.
 */

#define _GNU_SOURCE
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "vhpc.h"

void run_barrier(int thread)
{
    static struct barrier barrier;
    long grain = option_number("grain", 20);
    int sense = 0;

    for (;;) {
        compute(grain);
        barrier_wait(&barrier, &sense);
        if (thread == 0)
            page->lanes[0].work++;
    }
}

void run_block(int thread)
{
    static volatile int count;
    static volatile int generation;
    long grain = option_number("grain", 2000);
    long spins = option_number("spins", 1000);

    for (;;) {
        int mine = generation;
        compute(grain);
        if (__sync_add_and_fetch(&count, 1) == threads) {
            count = 0;
            __sync_add_and_fetch(&generation, 1);
            syscall(SYS_futex, &generation, FUTEX_WAKE, MAX_THREADS);
        } else {
            for (long i = 0; i < spins && generation == mine; i++)
                ;
            while (generation == mine)
                syscall(SYS_futex, &generation, FUTEX_WAIT, mine, NULL);
        }
        if (thread == 0)
            page->lanes[0].work++;
    }
}
