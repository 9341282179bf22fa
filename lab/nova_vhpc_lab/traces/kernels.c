// SPDX-FileCopyrightText: nova-vhpc developers
// SPDX-License-Identifier: Apache-2.0
/*
 * Skeletons of the NAS Parallel Benchmarks on four ranks. They solve nothing:
 * messages have the benchmarks' sizes and order, and computing is a loop of as
 * many operations.
 *
 *   kernels PROGRAM CLASS SPEED      e.g. kernels cg A 2
 *
 * SPEED divides the number of operations. It is chosen so that a run takes as
 * long as the real program.
 */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof(*(array)))
#define BUFFER (640 << 20)
#define WORLD MPI_COMM_WORLD

static int rank;
static double speed;
static char *out, *in;

/* Compute for MEGA times 10^6 operations on an array that fits the cache. */
static void compute(double mega)
{
    static double array[1 << 16], sum;
    static long at;
    const long length = COUNT(array);
    long left = mega * 1e6 / speed / 2;

    while (left > 0) {
        long now = left < length - at ? left : length - at;
        for (long i = at; i < at + now; i++)
            sum = sum * 0.5 + array[i];
        at = (at + now) % length;
        left -= now;
    }
}

static void exchange(int peer, int bytes)
{
    MPI_Request request;

    MPI_Irecv(in, bytes, MPI_BYTE, peer, 0, WORLD, &request);
    MPI_Send(out, bytes, MPI_BYTE, peer, 0, WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void reduce(int doubles)
{
    MPI_Allreduce(out, in, doubles, MPI_DOUBLE, MPI_SUM, WORLD);
}

/* Irregular and continuous: a matrix in 2x2 blocks, by conjugate gradients. */
static void product(double nonzeros, int size)
{
    const int row_peer = rank ^ 1, transposed = rank % 2 * 2 + rank / 2;

    compute(2e-6 * nonzeros);
    exchange(row_peer, size * 2);
    exchange(transposed, size * 4);
    compute(1e-6 * size);
}

static void cg(int size, int nonzeros, int iterations)
{
    const double block = (double)size * nonzeros * (nonzeros + 1) / 4;
    const int row_peer = rank ^ 1;

    compute(120e-6 * block);
    MPI_Barrier(WORLD);
    for (int i = 0; i <= iterations; i++) {
        compute(2e-6 * size);
        exchange(row_peer, 8);
        for (int j = 0; j < 25; j++) {
            product(block, size);
            exchange(row_peer, 8);
            compute(3e-6 * size);
            exchange(row_peer, 8);
            compute(1e-6 * size);
        }
        product(block, size);
        exchange(row_peer, 8);
        exchange(row_peer, 16);
    }
}

/* Bursts: V-cycles over grids from 2^levels points per side down to 2. */
static void halo(int side)
{
    const int bytes = (side + 2) * (side / 2 + 2) * 8;

    for (int axis = 1; axis <= 2; axis++) {
        MPI_Request requests[4];
        int number = 0;
        for (int d = 0; d < 2; d++)
            MPI_Irecv(in + d * (BUFFER / 2), bytes, MPI_BYTE, rank ^ axis, d,
                      WORLD, &requests[number++]);
        for (int d = 0; d < 2; d++)
            MPI_Isend(out, bytes, MPI_BYTE, rank ^ axis, d, WORLD,
                      &requests[number++]);
        MPI_Waitall(number, requests, MPI_STATUSES_IGNORE);
        compute(2e-6 * side * side);
    }
}

static void sweep(int side, double operations)
{
    compute(1e-6 * operations * side * side * side / 4);
    halo(side);
}

static void v_cycle(int levels)
{
    for (int level = levels - 1; level > 0; level--)
        sweep(1 << level, 20);
    sweep(2, 24);
    for (int level = 2; level <= levels; level++) {
        sweep(1 << level, 34);
        sweep(1 << level, 24);
    }
    sweep(1 << levels, 22);
}

static void mg(int levels, int iterations)
{
    const int side = 1 << levels;

    for (int warm_up = 1; warm_up >= 0; warm_up--) {
        sweep(side, 60);
        for (int i = 0; i < 20; i++)
            reduce(1);
        sweep(side, 22);
        reduce(1);
        if (warm_up)
            v_cycle(levels);
    }
    for (int i = 0; i < iterations; i++)
        v_cycle(levels);
    reduce(1);
}

/* Fine-grained: wavefronts from one corner to the other and back. MPI and TCP
 * merge the small messages of several planes; here eight planes send one. */
static void front(int forward, int side)
{
    const int half = side / 2, bytes = 5 * half * 8 * 8;
    const int first = forward ? 0 : 1;

    for (int planes = 0; planes < side - 2; planes += 8) {
        for (int axis = 2; axis > 0; axis--)
            if (!!(rank & axis) != first)
                MPI_Recv(in, bytes, MPI_BYTE, rank ^ axis, forward, WORLD,
                         MPI_STATUS_IGNORE);
        compute(485e-6 * half * half * 8);
        for (int axis = 2; axis > 0; axis--)
            if (!!(rank & axis) == first)
                MPI_Send(out, bytes, MPI_BYTE, rank ^ axis, forward, WORLD);
    }
}

static void lu(int side, int iterations)
{
    const int half = side / 2;
    const double cells = (double)half * half * side;

    compute(500e-6 * cells);
    for (int i = 0; i <= iterations; i++) {
        front(1, side);
        front(0, side);
        compute(110e-6 * cells);
        exchange(rank ^ 2, 80 * half * side);
        compute(100e-6 * cells);
        exchange(rank ^ 1, 80 * half * side);
        compute(200e-6 * cells);
        if (i % 50 == 0)
            reduce(5);
    }
}

/* Computing and exchange in turns: two cells per rank, solved along each axis.
 * FORWARD and BACK are the doubles per point that cross a face. */
static void multipartition(int side, int iterations, double flux,
                           double solve, int forward, int back)
{
    const int half = side / 2, face = half * half * 8;
    const double cells = 2.0 * half * half * half;

    compute(400e-6 * cells);
    MPI_Barrier(WORLD);
    for (int i = 0; i <= iterations; i++) {
        MPI_Request requests[12];
        int number = 0;
        compute(15e-6 * cells);
        for (int d = 0; d < 6; d++) {
            const int peer = rank ^ (d / 2 + 1);
            MPI_Irecv(in + d * (BUFFER / 6), 10 * face, MPI_BYTE, peer, d,
                      WORLD, &requests[number++]);
            MPI_Isend(out, 10 * face, MPI_BYTE, peer, d, WORLD,
                      &requests[number++]);
        }
        MPI_Waitall(number, requests, MPI_STATUSES_IGNORE);
        compute(1e-6 * flux * cells);
        for (int axis = 1; axis <= 3; axis++) {
            compute(0.25e-6 * solve * cells);
            exchange(rank ^ axis, forward * face);
            compute(0.425e-6 * solve * cells);
            exchange(rank ^ axis, back * face);
            compute(0.15e-6 * solve * cells);
        }
    }
    reduce(5);
}

/* Bursts: all to all. */
static void all_to_all(int bytes)
{
    MPI_Alltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, WORLD);
}

static void ft(int log_points, int iterations)
{
    const double points = ldexp(1, log_points);
    const double transform = 1.25e-6 * points * log_points;

    for (int run = 0; run < 2; run++) {
        compute(15e-6 * points + transform);
        all_to_all(points);
        for (int i = 0; i < (run ? iterations : 1); i++) {
            compute(transform);
            all_to_all(points);
            compute(5e-6 * points);
            reduce(1);
        }
        MPI_Barrier(WORLD);
    }
}

static void is(int log_keys)
{
    const double keys = ldexp(1, log_keys);

    compute(15e-6 * keys);
    for (int i = 0; i <= 10; i++) {
        compute(3e-6 * keys);
        reduce(515);
        all_to_all(4);
        all_to_all(keys / 4);
        compute(2e-6 * keys);
    }
    compute(8e-6 * keys);
    exchange(rank ^ 1, 4);
}

/* Hardly any communication. */
static void ep(int log_pairs)
{
    MPI_Barrier(WORLD);
    compute(6.5e-6 * ldexp(1, log_pairs) * (1 + 0.01 * rank));
    for (int i = 0; i < 3; i++)
        reduce(i < 2 ? 1 : 10);
}

/* Sizes by class (S W A B C) are those of the NAS benchmarks. */
static int run(const char *name, int class)
{
    static const int cg_size[] = {1400, 7000, 14000, 75000, 150000};
    static const int cg_nonzeros[] = {7, 8, 11, 13, 15};
    static const int mg_levels[] = {5, 7, 8, 8, 9};
    static const int lu_side[] = {12, 33, 64, 102, 162};
    static const int sp_side[] = {12, 36, 64, 102, 162};
    static const int bt_side[] = {12, 24, 64, 102, 162};
    static const int ft_log[] = {18, 19, 23, 25, 27};
    static const int is_log[] = {16, 20, 23, 25, 27};
    static const int ep_log[] = {24, 25, 28, 30, 32};

    if (!strcmp(name, "cg"))
        cg(cg_size[class], cg_nonzeros[class], class < 3 ? 15 : 75);
    else if (!strcmp(name, "mg"))
        mg(mg_levels[class], class < 3 ? 4 : 20);
    else if (!strcmp(name, "lu"))
        lu(lu_side[class], class ? class == 1 ? 300 : 250 : 50);
    else if (!strcmp(name, "sp"))
        multipartition(sp_side[class], class ? 400 : 100, 150, 150, 22, 10);
    else if (!strcmp(name, "bt"))
        multipartition(bt_side[class], class ? 200 : 60, 180, 900, 30, 5);
    else if (!strcmp(name, "ft"))
        ft(ft_log[class], class < 3 ? 6 : 20);
    else if (!strcmp(name, "is"))
        is(is_log[class]);
    else if (!strcmp(name, "ep"))
        ep(ep_log[class]);
    else
        return 0;
    return 1;
}

int main(int argc, char **argv)
{
    const char *classes = "SWABC", *class = NULL;
    int size, known;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(WORLD, &rank);
    MPI_Comm_size(WORLD, &size);
    if (argc == 4 && strlen(argv[2]) == 1)
        class = strchr(classes, *argv[2]);
    speed = argc == 4 ? atof(argv[3]) : 0;
    if (!class || speed <= 0 || size != 4) {
        fprintf(stderr, "usage: mpiexec -n 4 %s PROGRAM CLASS SPEED: a class "
                "of %s, a speed above 0\n", argv[0], classes);
        MPI_Abort(WORLD, 2);
    }
    out = calloc(1, BUFFER);
    in = calloc(1, BUFFER);
    known = run(argv[1], class - classes);
    if (!known && !rank)
        fprintf(stderr, "%s: no such program; known are bt cg ep ft is lu mg "
                "sp\n", argv[1]);
    /* MPICH 4.0 over UCX and TCP can hang in MPI_Finalize. */
    MPI_Barrier(WORLD);
    usleep(300000);
    _exit(known ? 0 : 2);
}
