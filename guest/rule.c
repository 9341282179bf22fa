/* SPDX-FileCopyrightText: nova-vhpc developers
 * SPDX-License-Identifier: Apache-2.0 */
#include "rule.h"

static void taken(struct vhpc_process *process, int64_t now_ns)
{
    process->taken++;
    process->taken_until_ns = now_ns + VHPC_HOLD_NS;
}

void vhpc_wait_begin(struct vhpc_process *process, struct vhpc_wait *wait,
                     int64_t bytes, int64_t now_ns)
{
    process->waits++;
    wait->bytes = bytes;
    wait->since_ns = wait->last_ns = now_ns;
}

int64_t vhpc_wait_polled(struct vhpc_process *process, struct vhpc_wait *wait,
                         int64_t begin_ns, int64_t end_ns, int switched)
{
    int64_t took_ns = end_ns - begin_ns, waited_ns, spin_ns, nap_ns;

    if (begin_ns - wait->last_ns > VHPC_GAP_NS ||
        (took_ns > VHPC_GAP_NS && (switched || wait->bytes <= VHPC_LARGE_BYTES)))
        taken(process, end_ns);
    else if (took_ns > VHPC_WORK_NS && !switched)
        wait->since_ns = end_ns;
    wait->last_ns = end_ns;
    if (process->mode == VHPC_ACTIVE)
        return 0;
    waited_ns = end_ns - wait->since_ns;
    spin_ns = VHPC_LONG_NS;
    if (process->mode == VHPC_PASSIVE || end_ns < process->taken_until_ns)
        spin_ns = VHPC_SPIN_NS;
    if (waited_ns < spin_ns)
        return 0;
    nap_ns = waited_ns / 16;
    if (nap_ns < VHPC_NAP_NS)
        nap_ns = VHPC_NAP_NS;
    return nap_ns < VHPC_NAP_MAX_NS ? nap_ns : VHPC_NAP_MAX_NS;
}

void vhpc_wait_napped(struct vhpc_process *process, struct vhpc_wait *wait,
                      int64_t asked_ns, int64_t end_ns)
{
    process->naps++;
    process->nap_ns += (uint64_t)(end_ns - wait->last_ns);
    /* It was woken up and did not get a CPU. */
    if (end_ns - wait->last_ns > asked_ns + VHPC_GAP_NS)
        taken(process, end_ns);
    wait->last_ns = end_ns;
}

void vhpc_wait_stolen(struct vhpc_process *process, int64_t stolen_ns, int64_t now_ns)
{
    if (process->stolen_at_ns &&
        (stolen_ns - process->stolen_ns) * 50 > now_ns - process->stolen_at_ns)
        taken(process, now_ns);
    process->stolen_ns = stolen_ns;
    process->stolen_at_ns = now_ns;
}
