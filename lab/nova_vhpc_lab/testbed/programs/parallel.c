// SPDX-FileCopyrightText: nova-vhpc developers
// SPDX-License-Identifier: Apache-2.0

/*
 * parallel MODE: compute, wait for all others, and so on, by MPI_Barrier(), or by
 * "#pragma omp barrier" if compiled with -fopenmp. Counts the barriers on the
 * page of the guest. launch.c stops it once it has said who it is.
 */

#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef _OPENMP
#include <omp.h>
#else
#include <mpi.h>
#endif

#include "vhpc.h"

struct page *page;

static long grain(void)
{
    static char line[4096];
    FILE *file = fopen("/proc/cmdline", "r");
    const char *at = file && fgets(line, sizeof(line), file)
                         ? strstr(line, " vhpc.grain=")
                         : NULL;

    if (file)
        fclose(file);
    return at ? atol(at + strlen(" vhpc.grain=")) : 20000;
}

static void pin(int rank)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(rank % sysconf(_SC_NPROCESSORS_ONLN), &set);
    sched_setaffinity(0, sizeof(set), &set);
}

int main(int count, char **words)
{
    long rounds = grain();
    int mode = count > 1 ? atoi(words[1]) : 0;
    int descriptor = open(PAGE_FILE, O_RDWR);

    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (page == MAP_FAILED) {
        perror("vhpc: " PAGE_FILE);
        return 1;
    }
#ifdef _OPENMP
    page->pids[mode][0] = getpid();
#pragma omp parallel
    {
        int rank = omp_get_thread_num();

        pin(rank);
        for (;;) {
            compute(rounds);
#pragma omp barrier
            if (rank == 0)
                page->lanes[0].work++;
        }
    }
#else
    int rank;

    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    pin(rank);
    MPI_Barrier(MPI_COMM_WORLD);
    page->pids[mode][rank] = getpid();
    for (;;) {
        compute(rounds);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0)
            page->lanes[0].work++;
    }
#endif
}
