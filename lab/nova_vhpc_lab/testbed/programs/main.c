// SPDX-FileCopyrightText: nova-vhpc developers
// SPDX-License-Identifier: Apache-2.0

/* Start the threads of the guest's workload, and report their progress. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "vhpc.h"

struct page *page;
int threads;

static char cmdline[4096];
static program_t program;

static const struct {
    const char *name;
    program_t program;
} programs[] = {
    {"barrier", run_barrier},   {"block", run_block},
    {"cpi", run_cpi},           {"hog", run_hog},
    {"stream", run_stream},     {"pingpong", run_pingpong},
    {"allreduce", run_allreduce}, {"web", run_web},
    {"mpich", run_library},     {"openmpi", run_library},
    {"openmp", run_library},
};

const char *option(const char *key, const char *fallback)
{
    static __thread char value[256];
    char needle[80];
    const char *at;

    snprintf(needle, sizeof(needle), " vhpc.%s=", key);
    at = strstr(cmdline, needle);
    if (!at)
        return fallback;
    at += strlen(needle);
    snprintf(value, sizeof(value), "%.*s", (int)strcspn(at, " \n"), at);
    return value;
}

long option_number(const char *key, long fallback)
{
    const char *text = option(key, NULL);
    return text ? atol(text) : fallback;
}

uint64_t now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000ull + time.tv_nsec / 1000000;
}

void barrier_wait(struct barrier *barrier, int *sense)
{
    *sense = !*sense;
    if (__sync_add_and_fetch(&barrier->count, 1) == threads) {
        barrier->count = 0;
        __sync_synchronize();
        barrier->sense = *sense;
    } else {
        while (barrier->sense != *sense)
            ;
    }
}

static void pin(int thread)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(thread % sysconf(_SC_NPROCESSORS_ONLN), &set);
    sched_setaffinity(0, sizeof(set), &set);
}

static void *start(void *argument)
{
    int thread = (int)(intptr_t)argument;
    pin(thread);
    program(thread);
    return NULL;
}

int main(void)
{
    FILE *file = fopen("/proc/cmdline", "r");
    const char *name;
    char chosen[32];
    int descriptor;

    cmdline[0] = ' ';
    if (!file || !fgets(cmdline + 1, sizeof(cmdline) - 1, file)) {
        puts("vhpc: no /proc/cmdline");
        return 1;
    }
    fclose(file);
    name = option("workload", "barrier");
    snprintf(chosen, sizeof(chosen), "%s", name);
    for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++)
        if (!strcmp(chosen, programs[i].name))
            program = programs[i].program;
    if (!program) {
        printf("vhpc: unknown workload %s\n", chosen);
        return 1;
    }
    threads = option_number("threads", sysconf(_SC_NPROCESSORS_ONLN));
    if (threads > MAX_THREADS)
        threads = MAX_THREADS;

    /* A file in memory, which the processes of a parallel program map, too. */
    descriptor = open(PAGE_FILE, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (descriptor < 0 || ftruncate(descriptor, 4096) < 0) {
        perror("vhpc: " PAGE_FILE);
        return 1;
    }
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_POPULATE | MAP_LOCKED, descriptor, 0);
    if (page == MAP_FAILED) {
        perror("vhpc: " PAGE_FILE);
        return 1;
    }
    page->nonce = option_number("nonce", 0);
    /* Composed at run time, so that no other page holds the whole string. */
    memcpy(page->magic, "vhpc-lab", 8);
    memcpy(page->magic + 8, "-page-01", 8);

    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, start, (void *)(intptr_t)i);
    }
    for (;;) {
        uint64_t work = 0;
        sleep(1);
        for (int i = 0; i < threads; i++)
            work += page->lanes[i].work;
        printf("vhpc: %s %llu\n", chosen, (unsigned long long)work);
        fflush(stdout);
    }
}
