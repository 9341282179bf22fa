// SPDX-FileCopyrightText: nova-vhpc developers
// SPDX-License-Identifier: Apache-2.0

/*
 * Workloads that communicate over virtio-net. "pingpong" (latency, two guests)
 * and "allreduce" (all threads compute, synchronise, exchange a vector with
 * every other guest of the cluster, and synchronise again) poll busily as MPI
 * does; "web" answers requests of a client on the host and sleeps between them.
 *
 * Parameters: vhpc.rank and vhpc.size are the guest's number and the number of
 * guests in its cluster. vhpc.net is the first three numbers of the addresses;
 * the last one of rank r is vhpc.net_offset + r + 2. vhpc.phase_ms is the
 * length of allreduce's phases: it communicates, then computes without a
 * message, in turn (0: it always communicates).
 */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "vhpc.h"

static struct sockaddr_in address_of(int rank, int port)
{
    struct sockaddr_in address;
    int number = option_number("net_offset", 0) + rank + 2;
    char text[64];

    snprintf(text, sizeof(text), "%s.%d", option("net", "10.77.0"), number);
    memset(&address, 0, sizeof(address));
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    inet_pton(AF_INET, text, &address.sin_addr);
    return address;
}

/* The lower rank listens, on a port that only this pair uses. */
int connect_peer(int rank, int size, int peer)
{
    int low = rank < peer ? rank : peer;
    int high = rank < peer ? peer : rank;
    int port = 7000 + low * size + high;
    int one = 1;
    int fd;

    if (rank == low) {
        struct sockaddr_in any;
        int door = socket(AF_INET, SOCK_STREAM, 0);
        memset(&any, 0, sizeof(any));
        any.sin_family = AF_INET;
        any.sin_port = htons(port);
        setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
        bind(door, (struct sockaddr *)&any, sizeof(any));
        listen(door, 1);
        fd = accept(door, NULL, NULL);
        close(door);
    } else {
        struct sockaddr_in address = address_of(low, port);
        for (;;) {
            fd = socket(AF_INET, SOCK_STREAM, 0);
            if (!connect(fd, (struct sockaddr *)&address, sizeof(address)))
                break;
            close(fd);
            usleep(100000);
        }
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    return fd;
}

static void fail(const char *what)
{
    printf("vhpc: %s: %s\n", what, strerror(errno));
    fflush(stdout);
    for (;;)
        sleep(3600);
}

void send_all(int fd, const void *data, size_t size)
{
    const char *at = data;

    while (size) {
        ssize_t sent = send(fd, at, size, 0);
        if (sent > 0) {
            at += sent;
            size -= sent;
        } else if (errno != EAGAIN && errno != EINTR) {
            fail("send");
        }
    }
}

void receive_all(int fd, void *data, size_t size)
{
    char *at = data;

    while (size) {
        ssize_t got = recv(fd, at, size, 0);
        if (got > 0) {
            at += got;
            size -= got;
        } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
            fail("receive");
        }
    }
}

void run_pingpong(int thread)
{
    long size = option_number("bytes", 64);
    int rank = option_number("rank", 0);
    char *message = calloc(1, size);
    int fd;

    if (thread != 0)
        return;
    fd = connect_peer(rank, 2, !rank);
    for (;;) {
        if (rank == 0)
            send_all(fd, message, size);
        receive_all(fd, message, size);
        if (rank != 0)
            send_all(fd, message, size);
        page->lanes[0].work++;
    }
}

void run_allreduce(int thread)
{
    static struct barrier barrier;
    static volatile int communicating = 1;
    long grain = option_number("grain", 20000);
    size_t bytes = option_number("bytes", 4096);
    uint64_t phase_ms = option_number("phase_ms", 0);
    int rank = option_number("rank", 0);
    int size = option_number("size", 2);
    int peers[MAX_THREADS];
    char *vector = calloc(1, bytes);
    uint64_t began = now_ms();
    long step = 0;
    int sense = 0;

    if (thread == 0)
        for (int peer = 0; peer < size; peer++)
            peers[peer] = peer == rank ? -1 : connect_peer(rank, size, peer);
    for (;;) {
        compute(grain);
        barrier_wait(&barrier, &sense);
        if (thread == 0) {
            /* Rank 0 decides on the phase and sends it in its vector. */
            int talk = communicating || ++step % 256 == 0;
            if (talk) {
                if (rank == 0 && phase_ms)
                    vector[0] = ((now_ms() - began) / phase_ms) % 2 == 0;
                else if (rank == 0)
                    vector[0] = 1;
                for (int peer = 0; peer < size; peer++)
                    if (peers[peer] >= 0)
                        send_all(peers[peer], vector, bytes);
                for (int peer = 0; peer < size; peer++) {
                    char first = vector[0];
                    if (peers[peer] < 0)
                        continue;
                    receive_all(peers[peer], vector, bytes);
                    if (peer != 0)
                        vector[0] = first;
                }
                communicating = vector[0];
            }
            page->lanes[0].work++;
        }
        barrier_wait(&barrier, &sense);
    }
}

void run_web(int thread)
{
    long grain = option_number("grain", 20000);
    int door = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in any;
    char request[2048];

    if (thread != 0)
        return;
    memset(&any, 0, sizeof(any));
    any.sin_family = AF_INET;
    any.sin_port = htons(8080);
    if (bind(door, (struct sockaddr *)&any, sizeof(any)))
        fail("bind");
    for (;;) {
        struct sockaddr_in from;
        socklen_t length = sizeof(from);
        ssize_t got = recvfrom(door, request, sizeof(request), 0,
                               (struct sockaddr *)&from, &length);
        if (got < 0)
            continue;
        compute(grain);
        sendto(door, request, got, 0, (struct sockaddr *)&from, length);
        page->lanes[0].work++;
    }
}
