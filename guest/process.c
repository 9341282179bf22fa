/* SPDX-FileCopyrightText: nova-vhpc developers
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "process.h"

#define STEAL_EVERY_NS 50000000

static struct vhpc_process process;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static double tick_ns;
static int64_t began_ns; /* when the first call waited */

static void set_up(void)
{
    const char *mode = getenv("VHPC_WAIT");
    long cpus = sysconf(_SC_NPROCESSORS_ONLN), ticks = sysconf(_SC_CLK_TCK);

    began_ns = vhpc_now();
    tick_ns = 1e9 / (double)(ticks > 0 ? ticks : 100) / (double)(cpus > 0 ? cpus : 1);
    if (!mode || !*mode || !strcmp(mode, "auto"))
        process.mode = VHPC_AUTO;
    else if (!strcmp(mode, "passive"))
        process.mode = VHPC_PASSIVE;
    else if (!strcmp(mode, "active"))
        process.mode = VHPC_ACTIVE;
    else
        fprintf(stderr,
                "nova-vhpc-wait: VHPC_WAIT is '%s'; there are auto, passive and "
                "active. Using auto.\n",
                mode);
}

int64_t vhpc_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Look at the steal time of all CPUs of the guest: the eighth number of the first
 * line of /proc/stat. */
static void look_at_steal(int64_t now_ns)
{
    char line[256];
    unsigned long long stolen;
    int file = open("/proc/stat", O_RDONLY | O_CLOEXEC);
    ssize_t length;

    if (file < 0)
        return;
    length = read(file, line, sizeof line - 1);
    close(file);
    if (length <= 0)
        return;
    line[length] = 0;
    if (sscanf(line, "cpu %*u %*u %*u %*u %*u %*u %*u %llu", &stolen) == 1)
        vhpc_wait_stolen(&process, (int64_t)((double)stolen * tick_ns), now_ns);
}

/* Return whether another thread took this one's CPU since the last look. */
static int switched(void)
{
    static __thread long before;
    struct rusage usage;
    long since;

    if (getrusage(RUSAGE_THREAD, &usage))
        return 0;
    since = usage.ru_nivcsw - before;
    before = usage.ru_nivcsw;
    return since > 0;
}

void vhpc_begin(struct vhpc_wait *wait, int64_t bytes)
{
    pthread_once(&once, set_up);
    vhpc_wait_begin(&process, wait, bytes, vhpc_now());
}

void vhpc_polled(struct vhpc_wait *wait, int64_t begin_ns)
{
    int64_t now_ns = vhpc_now(), nap_ns;
    int slack;

    nap_ns = vhpc_wait_polled(&process, wait, begin_ns, now_ns,
                              now_ns - begin_ns > VHPC_WORK_NS && switched());
    if (process.mode == VHPC_AUTO && now_ns - process.stolen_at_ns > STEAL_EVERY_NS &&
        now_ns - wait->since_ns > VHPC_SPIN_NS)
        look_at_steal(now_ns);
    if (!nap_ns)
        return;
    /* With the default slack of 50 us a nap of 50 us takes 100. */
    slack = prctl(PR_GET_TIMERSLACK);
    prctl(PR_SET_TIMERSLACK, 1000UL);
    nanosleep(&(struct timespec){0, nap_ns}, 0);
    if (slack > 0)
        prctl(PR_SET_TIMERSLACK, (unsigned long)slack);
    vhpc_wait_napped(&process, wait, nap_ns, vhpc_now());
}

void vhpc_report(void)
{
    const char *path = getenv("VHPC_WAIT_STATS");
    FILE *file = path && *path ? fopen(path, "ae") : 0;

    if (!file)
        return;
    fprintf(file,
            "{\"pid\": %d, \"waits\": %llu, \"naps\": %llu, \"nap_ms\": %.3f, "
            "\"taken\": %llu, \"ms\": %.3f}\n",
            (int)getpid(), (unsigned long long)process.waits,
            (unsigned long long)process.naps, (double)process.nap_ns * 1e-6,
            (unsigned long long)process.taken,
            began_ns ? (double)(vhpc_now() - began_ns) * 1e-6 : 0.0);
    fclose(file);
}
