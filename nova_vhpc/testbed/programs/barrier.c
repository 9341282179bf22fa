/*
 * Licensed under the Apache License, Version 2.0 (the "License"); you may
 * not use this file except in compliance with the License. You may obtain
 * a copy of the License at
 *
 *      http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing, software
 * distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
 * WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
 * License for the specific language governing permissions and limitations
 * under the License.
 */

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
