/* SPDX-FileCopyrightText: nova-vhpc developers
 * SPDX-License-Identifier: Apache-2.0 */
#include "rule.h"

/* Account for time of a wait, of which `gap_ns` was a gap. */
static void watch(struct vhpc_process *process, int64_t passed_ns, int64_t gap_ns)
{
    process->watched_ns += passed_ns;
    if (gap_ns > VHPC_GAP_NS) {
        process->taken++;
        process->gaps_ns += gap_ns;
    }
    while (process->watched_ns > 2 * VHPC_WINDOW_NS) {
        process->watched_ns /= 2;
        process->gaps_ns /= 2;
    }
}

int vhpc_wait_taken(const struct vhpc_process *process, int64_t now_ns)
{
    int64_t watched_ns = process->watched_ns;

    /* The first gap of a program says little. */
    if (watched_ns < VHPC_WINDOW_NS)
        watched_ns = VHPC_WINDOW_NS;
    return process->gaps_ns * VHPC_SHARE > watched_ns ||
           now_ns < process->taken_until_ns;
}

void vhpc_wait_begin(struct vhpc_process *process, struct vhpc_wait *wait,
                     int64_t bytes, int64_t now_ns)
{
    process->waits++;
    wait->bytes = bytes;
    wait->endless = 0;
    wait->since_ns = wait->last_ns = now_ns;
}

int64_t vhpc_wait_polled(struct vhpc_process *process, struct vhpc_wait *wait,
                         int64_t begin_ns, int64_t end_ns, int switched)
{
    int64_t took_ns = end_ns - begin_ns, gap_ns = begin_ns - wait->last_ns;
    int64_t waited_ns, nap_ns;
    int hurried;

    if (took_ns > VHPC_GAP_NS && (switched || wait->bytes <= VHPC_LARGE_BYTES))
        gap_ns += took_ns;
    else if (took_ns > VHPC_WORK_NS && !switched)
        wait->since_ns = end_ns;
    watch(process, end_ns - wait->last_ns, gap_ns);
    wait->last_ns = end_ns;
    if (process->mode == VHPC_ACTIVE)
        return 0;
    hurried = process->mode == VHPC_AUTO && !vhpc_wait_taken(process, end_ns);
    waited_ns = end_ns - wait->since_ns;
    if (waited_ns < (hurried ? VHPC_LONG_NS : VHPC_SPIN_NS))
        return 0;
    if (wait->endless)
        return hurried ? 0 : VHPC_NAP_NS;
    nap_ns = waited_ns / (hurried ? VHPC_LONG_PART : VHPC_PART);
    if (nap_ns < VHPC_NAP_NS)
        nap_ns = VHPC_NAP_NS;
    return nap_ns < VHPC_NAP_MAX_NS ? nap_ns : VHPC_NAP_MAX_NS;
}

void vhpc_wait_napped(struct vhpc_process *process, struct vhpc_wait *wait,
                      int64_t asked_ns, int64_t end_ns)
{
    process->naps++;
    process->nap_ns += (uint64_t)(end_ns - wait->last_ns);
    /* A late end is a gap: it was woken up and did not get a CPU. */
    watch(process, end_ns - wait->last_ns, end_ns - wait->last_ns - asked_ns);
    wait->last_ns = end_ns;
}

void vhpc_wait_stolen(struct vhpc_process *process, int64_t stolen_ns, int64_t now_ns)
{
    if (process->stolen_at_ns && (stolen_ns - process->stolen_ns) * VHPC_SHARE >
                                     now_ns - process->stolen_at_ns) {
        process->taken++;
        process->taken_until_ns = now_ns + VHPC_HOLD_NS;
    }
    process->stolen_ns = stolen_ns;
    process->stolen_at_ns = now_ns;
}
