/* SPDX-FileCopyrightText: nova-vhpc developers
 * SPDX-License-Identifier: Apache-2.0
 *
 * When a waiting thread spins and when it naps.
 *
 * A thread that waits polls. While nobody takes its CPU it spins, as MPI libraries
 * do, so a cluster that is alone loses nothing. While somebody does, it naps between
 * polls, so that its vCPU is free for a sibling or a neighbour. The CPU counts as taken
 *
 *  - while gaps are more than a SHARE-th of the time that the process lately waited.
 *    A gap is more than GAP_NS between two polls, within a poll, or after the end of a
 *    nap: the vCPU or the thread itself was put aside. This needs no steal time.
 *    Interrupts and the short turns of a daemon make gaps, too, but not so many;
 *  - for HOLD_NS, if the guest's steal time grew by more than a SHARE-th of what passed.
 *
 * Beside it, whoever has waited for LONG_NS naps in any case: a nap is then at most a
 * LONG_PART-th of the time already waited, so it costs little. Where the end of a wait is
 * not seen, naps do not grow, and there are none while nobody takes the CPU.
 *
 * All times are CLOCK_MONOTONIC in nanoseconds. Nothing here reads a clock or a file.
 */
#ifndef VHPC_RULE_H
#define VHPC_RULE_H

#include <stdint.h>

#define VHPC_GAP_NS 700000      /* a poll takes about 1 us, an interrupt below 100 */
#define VHPC_SHARE 8            /* what naps cost alone with waits of 0.2 ms or longer */
#define VHPC_WINDOW_NS 100000000 /* of waiting, in which gaps are weighed */
#define VHPC_HOLD_NS 200000000  /* growth of the steal time holds for so long */
#define VHPC_SPIN_NS 50000      /* spin so long before the first nap while taken */
#define VHPC_LONG_NS 3000000    /* and so long while nobody takes the CPU */
#define VHPC_PART 16            /* a nap is such a part of the wait while taken */
#define VHPC_LONG_PART 32       /* and such a part while nobody takes the CPU */
#define VHPC_NAP_NS 50000       /* least nap: what a halt and a wake-up are worth */
#define VHPC_NAP_MAX_NS 1000000
#define VHPC_WORK_NS 20000      /* a poll that takes longer moves data: no nap */
#define VHPC_LARGE_BYTES 262144 /* copying so much may take a gap's time */

enum vhpc_mode { VHPC_AUTO, VHPC_PASSIVE, VHPC_ACTIVE };

/* What all threads of a process share; updated without a lock, as an update that is
 * lost is made up for by the next one. */
struct vhpc_process {
    enum vhpc_mode mode;
    int64_t watched_ns, gaps_ns; /* time waited, and gaps in it; older ones halved */
    int64_t taken_until_ns;          /* by steal time */
    int64_t stolen_ns, stolen_at_ns; /* last look at the steal time */
    uint64_t waits, naps, nap_ns, taken; /* counted for statistics */
};

/* One blocking call. */
struct vhpc_wait {
    int64_t bytes;    /* size of its message, -1 if unknown */
    int64_t since_ns; /* when it began to wait, or last moved data */
    int64_t last_ns;  /* end of the last poll or nap */
    int endless;      /* its end is not seen: it may be several calls in a row */
};

void vhpc_wait_begin(struct vhpc_process *, struct vhpc_wait *, int64_t bytes,
                     int64_t now_ns);

/* Return how long to nap, 0 to poll again, after a poll from `begin_ns` to `end_ns`
 * that did not complete the call.
 *
 * `switched`: of a poll longer than WORK_NS, whether another thread ran meanwhile; else
 * it is taken for one that moved data. */
int64_t vhpc_wait_polled(struct vhpc_process *, struct vhpc_wait *, int64_t begin_ns,
                         int64_t end_ns, int switched);

/* Return whether somebody takes this process's CPUs. */
int vhpc_wait_taken(const struct vhpc_process *, int64_t now_ns);

/* Say that a nap of `asked_ns` ended at `end_ns`. */
void vhpc_wait_napped(struct vhpc_process *, struct vhpc_wait *, int64_t asked_ns,
                      int64_t end_ns);

/* Say how much CPU time was stolen from one CPU of the guest on average. */
void vhpc_wait_stolen(struct vhpc_process *, int64_t stolen_ns, int64_t now_ns);

#endif
