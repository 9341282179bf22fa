// SPDX-FileCopyrightText: nova-vhpc developers
// SPDX-License-Identifier: Apache-2.0

/*
 * An MPI program that measures messages as HPCVirt'09 does (section 6): the
 * OSU benchmarks, for several pairs at a time, and the exchanges of which the
 * NAS benchmarks consist.
 *
 *   exchange MEMBERS SECONDS PAIRS
 *
 * MEMBERS is the number of ranks on each host; ranks of one host follow each
 * other. At most PAIRS pairs are measured at a time; 0 for none. Every value
 * is measured for about SECONDS. Rank 0 prints one JSON object per value:
 *
 *   latency    one way of a ping-pong, in us, the mean of all pairs
 *   bandwidth  of all pairs together, in MB/s, in one direction
 *   bibandwidth  in both directions
 *   alltoall, halo, allreduce, transpose, keys  time of one exchange of all
 *              ranks, in ms
 */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WINDOW 4
#define MOST_BYTES 65536
#define PING_PONG_BYTES 262144

/* What one rank does in a measurement. */
struct part {
    MPI_Comm comm;   /* of all ranks that take part */
    int peer;        /* in comm */
    int is_first;    /* of the pair */
    int bytes;       /* of one message */
};

typedef void (*exchange)(const struct part *part, long count);

static char *out, *in;
static int rank, size;

/* A barrier that leaves the CPUs to the ranks that measure. */
static void wait_quietly(void)
{
    MPI_Request request;
    int done = 0;

    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    for (;;) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (done)
            return;
        usleep(1000);
    }
}

static void ping_pong(const struct part *part, long count)
{
    for (long i = 0; i < count; i++) {
        if (part->is_first)
            MPI_Send(out, part->bytes, MPI_CHAR, part->peer, 1, part->comm);
        MPI_Recv(in, part->bytes, MPI_CHAR, part->peer, 1, part->comm,
                 MPI_STATUS_IGNORE);
        if (!part->is_first)
            MPI_Send(out, part->bytes, MPI_CHAR, part->peer, 1, part->comm);
    }
}

/* A window of messages, in one direction or both. */
static void window(const struct part *part, int sends, int receives)
{
    MPI_Request requests[2 * WINDOW];
    int used = 0;

    for (int i = 0; receives && i < WINDOW; i++)
        MPI_Irecv(in + (size_t)i * part->bytes, part->bytes, MPI_CHAR,
                  part->peer, 2, part->comm, &requests[used++]);
    for (int i = 0; sends && i < WINDOW; i++)
        MPI_Isend(out, part->bytes, MPI_CHAR, part->peer, 2, part->comm,
                  &requests[used++]);
    MPI_Waitall(used, requests, MPI_STATUSES_IGNORE);
}

static void one_way(const struct part *part, long count)
{
    char answer = 0;

    for (long i = 0; i < count; i++) {
        window(part, part->is_first, !part->is_first);
        if (part->is_first)
            MPI_Recv(&answer, 1, MPI_CHAR, part->peer, 3, part->comm,
                     MPI_STATUS_IGNORE);
        else
            MPI_Send(&answer, 1, MPI_CHAR, part->peer, 3, part->comm);
    }
}

static void both_ways(const struct part *part, long count)
{
    for (long i = 0; i < count; i++)
        window(part, 1, 1);
}

/* FT: every rank has a message for every other one. */
static void alltoall(const struct part *part, long count)
{
    for (long i = 0; i < count; i++)
        MPI_Alltoall(out, part->bytes, MPI_CHAR, in, part->bytes, MPI_CHAR,
                     part->comm);
}

/* BT, SP, LU, MG: neighbours, here on a ring, in both directions. */
static void halo(const struct part *part, long count)
{
    int next = (rank + 1) % size, last = (rank + size - 1) % size;

    for (long i = 0; i < count; i++) {
        MPI_Sendrecv(out, part->bytes, MPI_CHAR, next, 4, in, part->bytes,
                     MPI_CHAR, last, 4, part->comm, MPI_STATUS_IGNORE);
        MPI_Sendrecv(out, part->bytes, MPI_CHAR, last, 5, in, part->bytes,
                     MPI_CHAR, next, 5, part->comm, MPI_STATUS_IGNORE);
    }
}

/* The scalar products of CG. */
static void allreduce(const struct part *part, long count)
{
    for (long i = 0; i < count; i++)
        MPI_Allreduce(out, in, part->bytes / (int)sizeof(double), MPI_DOUBLE,
                      MPI_SUM, part->comm);
}

/* The vector of CG: half the cluster away. */
static void transpose(const struct part *part, long count)
{
    int peer = (rank + size / 2) % size;

    for (long i = 0; i < count; i++)
        MPI_Sendrecv(out, part->bytes, MPI_CHAR, peer, 6, in, part->bytes,
                     MPI_CHAR, peer, 6, part->comm, MPI_STATUS_IGNORE);
}

/* IS: how many keys there are, how many go where, and the keys. */
static void keys(const struct part *part, long count)
{
    int counts[size], places[size];

    for (int i = 0; i < size; i++) {
        /* Keys are not spread evenly: half to one and a half times. */
        counts[i] = part->bytes / 2 + part->bytes * ((rank + i) % size) / size;
        places[i] = i * 2 * part->bytes;
    }
    for (long i = 0; i < count; i++) {
        MPI_Allreduce(out, in, 1024, MPI_INT, MPI_MAX, part->comm);
        MPI_Alltoall(out, 1, MPI_INT, in, 1, MPI_INT, part->comm);
        MPI_Alltoallv(out, counts, places, MPI_CHAR, in, counts, places,
                      MPI_CHAR, part->comm);
    }
}

/*
 * Return the seconds of one exchange, those of the slowest rank: as many
 * exchanges as take half of `seconds` at least.
 */
static double time_of(exchange run, const struct part *part, double seconds)
{
    long count = 1;

    for (;;) {
        double start, own, slowest, more;

        MPI_Barrier(part->comm);
        start = MPI_Wtime();
        run(part, count);
        own = MPI_Wtime() - start;
        MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, part->comm);
        if (slowest >= seconds / 2)
            return slowest / count;
        more = slowest > 0 ? seconds / slowest + 1 : 16;
        count *= more > 16 ? 16 : (long)more;
    }
}

static void print(const char *test, const char *where, int pairs, int bytes,
                  double value)
{
    printf("{\"test\": \"%s\", \"where\": \"%s\", \"pairs\": %d, "
           "\"bytes\": %d, \"value\": %.6g}\n",
           test, where, pairs, bytes, value);
    fflush(stdout);
}

/*
 * Measure messages of so many pairs at a time: rank i with rank i + distance,
 * from rank 0 on, each step apart.
 */
static void measure_pairs(const char *where, int pairs, int distance, int step,
                          double seconds)
{
    static const int sizes[] = {4096, 16384, MOST_BYTES};
    struct part part = {.peer = -1};
    int place = 0;

    for (int i = 0; i < pairs; i++) {
        if (rank == i * step || rank == i * step + distance) {
            part.is_first = rank == i * step;
            part.peer = 2 * i + part.is_first;
            place = 2 * i + !part.is_first;
        }
    }
    MPI_Comm_split(MPI_COMM_WORLD, part.peer < 0 ? MPI_UNDEFINED : 0, place,
                   &part.comm);
    if (part.peer >= 0) {
        double found;

        part.bytes = 1;
        found = time_of(ping_pong, &part, seconds) / 2 * 1e6;
        if (rank == 0)
            print("latency", where, pairs, part.bytes, found);
        part.bytes = PING_PONG_BYTES;
        found = time_of(ping_pong, &part, seconds) / 2 * 1e6;
        if (rank == 0)
            print("latency", where, pairs, part.bytes, found);
        for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
            double megabytes;

            part.bytes = sizes[i];
            megabytes = (double)pairs * WINDOW * part.bytes / 1e6;
            found = megabytes / time_of(one_way, &part, seconds);
            if (rank == 0)
                print("bandwidth", where, pairs, part.bytes, found);
            found = 2 * megabytes / time_of(both_ways, &part, seconds);
            if (rank == 0)
                print("bibandwidth", where, pairs, part.bytes, found);
        }
        MPI_Comm_free(&part.comm);
    }
    wait_quietly();
}

static void measure_all(const char *test, exchange run, int bytes,
                        double seconds)
{
    struct part part = {.comm = MPI_COMM_WORLD, .bytes = bytes};
    double found = time_of(run, &part, seconds) * 1e3;

    if (rank == 0)
        print(test, "all", size, bytes, found);
}

int main(int argc, char **argv)
{
    int members, most;
    double seconds;
    size_t room;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 4 || (members = atoi(argv[1])) < 1 || size % members ||
        (seconds = atof(argv[2])) <= 0 || (most = atoi(argv[3])) < 0) {
        fprintf(stderr,
                "usage: exchange MEMBERS SECONDS PAIRS, with MEMBERS ranks "
                "on each host\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
        return 2;
    }
    room = PING_PONG_BYTES;
    if (room < (size_t)WINDOW * MOST_BYTES)
        room = (size_t)WINDOW * MOST_BYTES;
    if (room < (size_t)size * MOST_BYTES)
        room = (size_t)size * MOST_BYTES;
    out = calloc(1, room);
    in = calloc(1, room);
    if (!out || !in) {
        MPI_Abort(MPI_COMM_WORLD, 1);
        return 1;
    }
    /* Connections are made before anything is measured. */
    measure_all("warm_up", alltoall, 1024, 0.001);
    for (int pairs = 1;
         size > members && pairs <= members && pairs <= most; pairs++)
        measure_pairs("remote", pairs, members, 1, seconds);
    for (int pairs = 1; pairs <= members / 2 && pairs <= most; pairs++)
        measure_pairs("local", pairs, 1, 2, seconds);
    measure_all("alltoall", alltoall, 32768, seconds);
    measure_all("halo", halo, 16384, seconds);
    measure_all("allreduce", allreduce, 8, seconds);
    measure_all("transpose", transpose, 32768, seconds);
    measure_all("keys", keys, 16384, seconds);
    MPI_Finalize();
    return 0;
}
