/* SPDX-FileCopyrightText: nova-vhpc developers
 * SPDX-License-Identifier: Apache-2.0
 *
 * barriers SECONDS MICROSECONDS [uneven]: compute for so much CPU time, wait for all
 * others, and so on; print how often. Uneven: rank 0 does not compute but waits.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double seconds(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int main(int count, char **words)
{
    double length, work, start, until;
    int rank, stop = 0;
    long rounds = 0;

    MPI_Init(&count, &words);
    if (count != 3 && (count != 4 || strcmp(words[3], "uneven")))
        MPI_Abort(MPI_COMM_WORLD, 2);
    length = atof(words[1]);
    work = atof(words[2]) * 1e-6;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (count == 4 && rank == 0)
        work = 0;
    start = seconds(CLOCK_MONOTONIC);
    while (!stop) {
        until = seconds(CLOCK_THREAD_CPUTIME_ID) + work;
        while (seconds(CLOCK_THREAD_CPUTIME_ID) < until)
            ;
        MPI_Barrier(MPI_COMM_WORLD);
        if (++rounds % 16 == 0) {
            stop = seconds(CLOCK_MONOTONIC) - start > length;
            MPI_Bcast(&stop, 1, MPI_INT, 0, MPI_COMM_WORLD);
        }
    }
    if (rank == 0)
        printf("%.3f\n", (double)rounds / (seconds(CLOCK_MONOTONIC) - start));
    MPI_Finalize();
    return 0;
}
