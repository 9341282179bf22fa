// SPDX-FileCopyrightText: nova-vhpc developers
// SPDX-License-Identifier: Apache-2.0

/* Declarations for all workloads, with the page that the host reads. */

#ifndef VHPC_H
#define VHPC_H

#include <stddef.h>
#include <stdint.h>

#define MAX_THREADS 16
#define BUCKETS 64
#define PAGE_FILE "/progress"

/* How a parallel program waits: as its library was shipped, or so that it naps. */
enum { SHIPPED, NAPPING, MODES };

struct lane {
    volatile uint64_t work;
    char pad[56];
};

/*
 * The progress page, one page of guest memory. The host finds it by its magic
 * string in the guest's memfd and reads it without help of the guest: a serial
 * console lags by seconds if the guest's vCPUs get little CPU time.
 */
struct page {
    char magic[16];
    uint64_t nonce;
    /* Of a parallel program (launch.c): which mode the host wants, and which one
     * runs: its number plus 1, or MODES + 1 for none. The host writes no more. */
    volatile uint64_t wanted;
    volatile uint64_t running;
    uint64_t reserved[3];
    struct lane lanes[MAX_THREADS];
    volatile int32_t pids[MODES][MAX_THREADS];
};

extern struct page *page;
extern int threads;

/* Value of vhpc.<key>= on the kernel command line. */
const char *option(const char *key, const char *fallback);
long option_number(const char *key, long fallback);

/* Sense-reversing spin barrier of all threads of this guest. */
struct barrier {
    volatile int count;
    char pad[60];
    volatile int sense;
};
void barrier_wait(struct barrier *barrier, int *sense);

/* A little arithmetic that the compiler cannot remove. */
static inline double compute(long rounds)
{
    volatile double sum = 1.0;
    for (long i = 0; i < rounds; i++)
        sum = sum * 1.0000001 + 0.5;
    return sum;
}

/* Milliseconds since boot; too slow under emulation for inner loops. */
uint64_t now_ms(void);

/* Non-blocking TCP socket, connected to the peer of a rank. */
int connect_peer(int rank, int size, int peer);
void send_all(int fd, const void *data, size_t size);
void receive_all(int fd, void *data, size_t size);

typedef void (*program_t)(int thread);
void run_barrier(int thread);
void run_block(int thread);
void run_cpi(int thread);
void run_hog(int thread);
void run_stream(int thread);
void run_pingpong(int thread);
void run_allreduce(int thread);
void run_web(int thread);
void run_library(int thread);

#endif
