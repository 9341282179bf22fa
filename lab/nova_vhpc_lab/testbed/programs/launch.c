// SPDX-FileCopyrightText: nova-vhpc developers
// SPDX-License-Identifier: Apache-2.0

/*
 * Workloads of programs with a real MPI or OpenMP library (parallel.c). Each
 * program is started in both modes, one after the other, and stopped by SIGSTOP.
 * From then on that mode runs which the host writes into the page, from 1, or
 * none. So both modes are measured within seconds of each other, in one guest.
 */

#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "vhpc.h"

#define LOOK_US 20000

static const char *const modes[MODES] = {"shipped", "napping"};

/* Send a signal to all processes of a mode; return their number. */
static int signal_all(int mode, int number)
{
    int count = 0;

    for (int i = 0; i < MAX_THREADS; i++)
        if (page->pids[mode][i]) {
            kill(page->pids[mode][i], number);
            count++;
        }
    return count;
}

static void launch(const char *library, int mode)
{
    if (fork())
        return;
    /* This thread is pinned to one CPU, and its children would be, too. */
    cpu_set_t all;
    CPU_ZERO(&all);
    for (int i = 0; i < MAX_THREADS; i++)
        CPU_SET(i, &all);
    sched_setaffinity(0, sizeof(all), &all);
    execl("/bin/parallel", "parallel", library, modes[mode], NULL);
    perror("vhpc: /bin/parallel");
    exit(1);
}

void run_library(int thread)
{
    char library[32];
    int processes;

    if (thread)
        return;
    snprintf(library, sizeof(library), "%s", option("workload", ""));
    processes = strcmp(library, "openmp") ? threads : 1;
    for (int mode = 0; mode < MODES; mode++) {
        launch(library, mode);
        while (signal_all(mode, 0) < processes)
            usleep(LOOK_US);
        signal_all(mode, SIGSTOP);
    }
    for (;;) {
        uint64_t wanted = page->wanted;

        if (wanted && wanted != page->running) {
            for (int mode = 0; mode < MODES; mode++)
                signal_all(mode, wanted == mode + 1u ? SIGCONT : SIGSTOP);
            page->running = wanted;
        }
        usleep(LOOK_US);
    }
}
