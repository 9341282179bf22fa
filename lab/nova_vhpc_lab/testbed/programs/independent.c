// SPDX-FileCopyrightText: nova-vhpc developers
// SPDX-License-Identifier: Apache-2.0

/*
 * Workloads whose threads do not wait for each other: "cpi" (pi by regular
 * polygons, similar to NPB's EP), "hog" (CPU time only) and "stream"
 * (memory bandwidth). Work is counted per thread.
 */

#include <stdlib.h>

#include "vhpc.h"

void run_cpi(int thread)
{
    for (;;) {
        const long intervals = 4096;
        volatile double sum = 0.0;
        for (long i = 0; i < intervals; i++) {
            double x = (i + 0.5) / intervals;
            sum += 4.0 / (1.0 + x * x);
        }
        page->lanes[thread].work++;
    }
}

void run_hog(int thread)
{
    for (;;) {
        compute(4096);
        page->lanes[thread].work++;
    }
}

void run_stream(int thread)
{
    const size_t count = 256 * 1024;
    double *a = malloc(count * sizeof(*a));
    double *b = malloc(count * sizeof(*b));
    double *c = malloc(count * sizeof(*c));

    for (size_t i = 0; i < count; i++)
        a[i] = b[i] = c[i] = 1.0;
    for (;;) {
        for (size_t start = 0; start < count; start += 4096) {
            for (size_t i = start; i < start + 4096; i++)
                a[i] = b[i] + 3.0 * c[i];
            /* 24 bytes moved per element: 96 KiB each time. */
            page->lanes[thread].work++;
            __asm__ volatile("" : : "r"(a) : "memory");
        }
    }
}
