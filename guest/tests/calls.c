/* SPDX-FileCopyrightText: nova-vhpc developers
 * SPDX-License-Identifier: Apache-2.0
 *
 * Call all that libvhpcwait.so replaces, and print what the calls return. With the
 * library the output must be the same as without it.
 */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, size;

static int class_of(int error)
{
    int class;

    MPI_Error_class(error, &class);
    return class;
}

/* Print the numbers of all ranks in order of rank. */
static void show(const char *name, const int *numbers, int count)
{
    int *all = malloc(sizeof(int) * (size_t)(count * size)), i;

    MPI_Gather(numbers, count, MPI_INT, all, count, MPI_INT, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("%s:", name);
        for (i = 0; i < count * size; i++)
            printf(" %d", all[i]);
        printf("\n");
    }
    free(all);
}

static void show_status(const char *name, MPI_Status *status)
{
    int numbers[4] = {status->MPI_SOURCE, status->MPI_TAG, 0, 0};

    MPI_Get_count(status, MPI_INT, &numbers[2]);
    MPI_Test_cancelled(status, &numbers[3]);
    show(name, numbers, 4);
}

static void messages(void)
{
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    int out = rank * 10, in[4] = {-1, -1, -1, -1}, big[70000], index, i;
    MPI_Status status, statuses[4];
    MPI_Request requests[4];
    MPI_Message message;
    int (*const sends[])(const void *, int, MPI_Datatype, int, int,
                         MPI_Comm) = {MPI_Send, MPI_Ssend, MPI_Rsend};
    static const char *const names[] = {"send", "ssend", "rsend"};

    for (i = 0; i < 3; i++) {
        MPI_Request ready;

        memset(&status, 0, sizeof status);
        MPI_Irecv(in, 4, MPI_INT, last, i, MPI_COMM_WORLD, &ready);
        MPI_Barrier(MPI_COMM_WORLD);
        sends[i](&out, 1, MPI_INT, next, i, MPI_COMM_WORLD);
        MPI_Wait(&ready, &status);
        show(names[i], in, 1);
        show_status(names[i], &status);
    }
    memset(big, rank, sizeof big);
    MPI_Sendrecv_replace(big, 70000, MPI_INT, next, 5, last, 5, MPI_COMM_WORLD,
                         &status);
    show("sendrecv_replace", &big[69999], 1);
    show_status("sendrecv_replace", &status);
    MPI_Sendrecv(&out, 1, MPI_INT, next, 6, in, 4, MPI_INT, MPI_ANY_SOURCE,
                 MPI_ANY_TAG, MPI_COMM_WORLD, &status);
    show("sendrecv", in, 1);
    show_status("sendrecv", &status);
    MPI_Sendrecv(&out, 1, MPI_INT, MPI_PROC_NULL, 6, in, 4, MPI_INT, MPI_PROC_NULL, 7,
                 MPI_COMM_WORLD, &status);
    show_status("proc null", &status);
    MPI_Recv(in, 4, MPI_INT, MPI_PROC_NULL, 7, MPI_COMM_WORLD, &status);
    show_status("recv of proc null", &status);
    MPI_Isend(&out, 1, MPI_INT, next, 8, MPI_COMM_WORLD, requests);
    MPI_Probe(last, 8, MPI_COMM_WORLD, &status);
    show_status("probe", &status);
    MPI_Recv(in, 4, MPI_INT, last, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(requests, MPI_STATUS_IGNORE);
    MPI_Isend(&out, 1, MPI_INT, next, 9, MPI_COMM_WORLD, requests);
    MPI_Mprobe(MPI_ANY_SOURCE, 9, MPI_COMM_WORLD, &message, &status);
    show_status("mprobe", &status);
    MPI_Mrecv(in, 4, MPI_INT, &message, MPI_STATUS_IGNORE);
    MPI_Wait(requests, MPI_STATUS_IGNORE);
    show("mrecv", in, 1);

    for (i = 0; i < 2; i++) {
        MPI_Irecv(&in[i], 1, MPI_INT, last, 20 + i, MPI_COMM_WORLD, &requests[i]);
        MPI_Isend(&out, 1, MPI_INT, next, 20 + i, MPI_COMM_WORLD, &requests[2 + i]);
    }
    MPI_Waitall(4, requests, statuses);
    show("waitall", in, 2);
    show_status("waitall", &statuses[1]);
    show("waitall nulls",
         (int[]){requests[0] == MPI_REQUEST_NULL, requests[3] == MPI_REQUEST_NULL}, 2);
    MPI_Waitany(4, requests, &index, &status);
    show("waitany of none", (int[]){index == MPI_UNDEFINED}, 1);
    MPI_Waitsome(4, requests, &index, in, statuses);
    show("waitsome of none", (int[]){index == MPI_UNDEFINED}, 1);
    MPI_Wait(requests, &status);
    show("wait of none", (int[]){status.MPI_SOURCE == MPI_ANY_SOURCE}, 1);
    MPI_Irecv(&in[0], 1, MPI_INT, last, 30, MPI_COMM_WORLD, &requests[0]);
    requests[1] = MPI_REQUEST_NULL;
    MPI_Send(&out, 1, MPI_INT, next, 30, MPI_COMM_WORLD);
    MPI_Waitany(2, requests, &index, &status);
    show("waitany", (int[]){index, in[0]}, 2);
    show_status("waitany", &status);
    MPI_Irecv(&in[0], 1, MPI_INT, last, 31, MPI_COMM_WORLD, &requests[1]);
    requests[0] = MPI_REQUEST_NULL;
    MPI_Send(&out, 1, MPI_INT, next, 31, MPI_COMM_WORLD);
    MPI_Waitsome(2, requests, &index, &in[1], statuses);
    show("waitsome", (int[]){index, in[1], in[0]}, 3);
    show_status("waitsome", &statuses[0]);

    MPI_Irecv(in, 1, MPI_INT, last, 40, MPI_COMM_WORLD, requests);
    MPI_Cancel(requests);
    MPI_Wait(requests, &status);
    MPI_Test_cancelled(&status, &index);
    show("cancelled", &index, 1);
    MPI_Recv_init(in, 1, MPI_INT, last, 41, MPI_COMM_WORLD, &requests[0]);
    MPI_Send_init(&out, 1, MPI_INT, next, 41, MPI_COMM_WORLD, &requests[1]);
    for (i = 0; i < 3; i++) {
        out = rank + i;
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, statuses);
        show("persistent", in, 1);
    }
    MPI_Wait(&requests[0], &status);
    show("inactive", (int[]){requests[0] != MPI_REQUEST_NULL}, 1);
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
}

static void collectives(MPI_Comm comm)
{
    int counts[64], offsets[64], in[64], out[64], i;

    for (i = 0; i < size; i++) {
        counts[i] = 1;
        offsets[i] = i;
        out[i] = rank * 100 + i;
    }
#define RUN(name, count, call)                                                        \
    memset(in, 0, sizeof in);                                                         \
    call;                                                                             \
    show(name, in, count)
    RUN("bcast", 1, in[0] = rank + 1; MPI_Bcast(in, 1, MPI_INT, size - 1, comm));
    RUN("reduce", 2, MPI_Reduce(out, in, 2, MPI_INT, MPI_SUM, 1, comm));
    RUN("reduce in place", 1, in[0] = rank;
        MPI_Reduce(rank == 0 ? MPI_IN_PLACE : in, in, 1, MPI_INT, MPI_MAX, 0, comm));
    RUN("allreduce", 2, MPI_Allreduce(out, in, 2, MPI_INT, MPI_SUM, comm));
    RUN("allreduce in place", 1, in[0] = rank;
        MPI_Allreduce(MPI_IN_PLACE, in, 1, MPI_INT, MPI_SUM, comm));
    RUN("gather", size, MPI_Gather(out, 1, MPI_INT, in, 1, MPI_INT, 0, comm));
    RUN("gatherv", size,
        MPI_Gatherv(out, 1, MPI_INT, in, counts, offsets, MPI_INT, 0, comm));
    RUN("scatter", 1, MPI_Scatter(out, 1, MPI_INT, in, 1, MPI_INT, 0, comm));
    RUN("scatterv", 1,
        MPI_Scatterv(out, counts, offsets, MPI_INT, in, 1, MPI_INT, 0, comm));
    RUN("allgather", size, MPI_Allgather(out, 1, MPI_INT, in, 1, MPI_INT, comm));
    RUN("allgather in place", size, in[rank] = rank + 5;
        MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, in, 1, MPI_INT, comm));
    RUN("allgatherv", size,
        MPI_Allgatherv(out, 1, MPI_INT, in, counts, offsets, MPI_INT, comm));
    RUN("alltoall", size, MPI_Alltoall(out, 1, MPI_INT, in, 1, MPI_INT, comm));
    RUN("alltoallv", size,
        MPI_Alltoallv(out, counts, offsets, MPI_INT, in, counts, offsets, MPI_INT,
                      comm));
    {
        MPI_Datatype types[64];
        int bytes[64];

        for (i = 0; i < size; i++) {
            types[i] = MPI_INT;
            bytes[i] = i * (int)sizeof(int);
        }
        RUN("alltoallw", size,
            MPI_Alltoallw(out, counts, bytes, types, in, counts, bytes, types, comm));
    }
    RUN("scan", 1, MPI_Scan(&rank, in, 1, MPI_INT, MPI_SUM, comm));
    RUN("exscan", 1, MPI_Exscan(&rank, in, 1, MPI_INT, MPI_SUM, comm));
    RUN("reduce_scatter", 1,
        MPI_Reduce_scatter(out, in, counts, MPI_INT, MPI_SUM, comm));
    RUN("reduce_scatter_block", 1,
        MPI_Reduce_scatter_block(out, in, 1, MPI_INT, MPI_SUM, comm));
    {
        MPI_Comm ring;
        int periodic = 1;

        MPI_Cart_create(comm, 1, &size, &periodic, 0, &ring);
        RUN("neighbor_allgather", 2,
            MPI_Neighbor_allgather(out, 1, MPI_INT, in, 1, MPI_INT, ring));
        RUN("neighbor_alltoall", 2,
            MPI_Neighbor_alltoall(out, 1, MPI_INT, in, 1, MPI_INT, ring));
        RUN("neighbor_alltoallv", 2,
            MPI_Neighbor_alltoallv(out, counts, offsets, MPI_INT, in, counts, offsets,
                                   MPI_INT, ring));
        MPI_Comm_free(&ring);
    }
}

static void windows(void)
{
    int own[2] = {-1, -1}, next = (rank + 1) % size, last = (rank + size - 1) % size,
        i;
    int *shared, disp = 0;
    MPI_Group all, before, after;
    MPI_Win window;

    MPI_Win_create(own, sizeof own, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD,
                   &window);
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, 1, &last, &before);
    MPI_Group_incl(all, 1, &next, &after);
    for (i = 0; i < 3; i++) {
        int out = rank * 10 + i;

        MPI_Win_fence(i ? 0 : MPI_MODE_NOPRECEDE, window);
        MPI_Put(&out, 1, MPI_INT, next, 0, 1, MPI_INT, window);
        MPI_Win_fence(i == 2 ? MPI_MODE_NOSUCCEED : 0, window);
        show("fence", own, 1);
        MPI_Win_post(before, 0, window);
        MPI_Win_start(after, 0, window);
        MPI_Put(&out, 1, MPI_INT, next, 1, 1, MPI_INT, window);
        MPI_Win_complete(window);
        MPI_Win_wait(window);
        show("wait", own, 2);
    }
    MPI_Group_free(&all);
    MPI_Group_free(&before);
    MPI_Group_free(&after);
    MPI_Win_free(&window);
    show("free", (int[]){window == MPI_WIN_NULL}, 1);
    MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &shared,
                     &window);
    *shared = 0;
    MPI_Win_fence(0, window);
    MPI_Accumulate(&rank, 1, MPI_INT, 0, disp, 1, MPI_INT, MPI_SUM, window);
    MPI_Win_fence(0, window);
    show("accumulate", shared, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, next, 0, window);
    MPI_Accumulate(&rank, 1, MPI_INT, next, disp, 1, MPI_INT, MPI_SUM, window);
    MPI_Win_flush(next, window);
    MPI_Win_unlock(next, window);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
    show("lock", shared, 1);
    MPI_Win_unlock(rank, window);
    MPI_Win_free(&window);
#if MPI_VERSION >= 4
    MPI_Allreduce_c(&rank, &own[0], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Sendrecv_replace_c(&own[0], 1, MPI_INT, next, 45, last, 45, MPI_COMM_WORLD,
                           MPI_STATUS_IGNORE);
#else
    own[0] = size * (size - 1) / 2;
#endif
    show("large counts", own, 1);
}

static void errors(void)
{
    int in, out[2] = {0, 0}, next = (rank + 1) % size, last = (rank + size - 1) % size;
    int ends[3];
    MPI_Request requests[2];
    MPI_Status status;

    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    ends[0] = class_of(MPI_Send(&in, 1, MPI_INT, size + 5, 0, MPI_COMM_WORLD));
    ends[1] = class_of(MPI_Bcast(&in, -1, MPI_INT, 0, MPI_COMM_WORLD));
    ends[2] = class_of(MPI_Recv(&in, 1, MPI_INT, last, -5, MPI_COMM_WORLD, &status));
    show("wrong arguments", ends, 3);
    /* A message that is longer than the buffer. */
    MPI_Isend(out, 2, MPI_INT, next, 50, MPI_COMM_WORLD, &requests[1]);
    ends[0] = class_of(MPI_Recv(&in, 1, MPI_INT, last, 50, MPI_COMM_WORLD, &status));
    MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
    show("truncated", ends, 1);
}

static void *talk(void *number)
{
    int tag = 60 + *(int *)number, i, in, next = (rank + 1) % size;
    int last = (rank + size - 1) % size;

    for (i = 0; i < 200; i++) {
        MPI_Sendrecv(&i, 1, MPI_INT, next, tag, &in, 1, MPI_INT, last, tag,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (in != i)
            abort();
    }
    return 0;
}

int main(int count, char **words)
{
    int provided, numbers[4] = {0, 1, 2, 3}, i;
    pthread_t threads[4];
    MPI_Comm twin, halves, between;

    MPI_Init_thread(&count, &words, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    messages();
    collectives(MPI_COMM_WORLD);
    MPI_Comm_dup(MPI_COMM_WORLD, &twin);
    collectives(twin);
    MPI_Comm_free(&twin);
    if (provided == MPI_THREAD_MULTIPLE) {
        for (i = 0; i < 4; i++)
            pthread_create(&threads[i], 0, talk, &numbers[i]);
        for (i = 0; i < 4; i++)
            pthread_join(threads[i], 0);
    }
    show("threads", &provided, 1);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &halves);
    MPI_Intercomm_create(halves, 0, MPI_COMM_WORLD, 1 - rank % 2, 70, &between);
    i = rank;
    MPI_Bcast(&i, 1, MPI_INT,
              rank == 0  ? MPI_ROOT
              : rank % 2 ? 0
                         : MPI_PROC_NULL,
              between);
    show("intercommunicator", &i, 1);
    MPI_Barrier(between);
    windows();
    errors();
    if (rank == 0)
        usleep(20000);
    MPI_Finalize();
    if (rank == 0)
        printf("end\n");
    return 0;
}
