# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Co-scheduling: sibling vCPUs of a VM run at the same time.

Xen does not have it: it is what the ATC paper compares with (section IV.A,
"CS"). When a vCPU's turn comes, its runnable siblings get BOOST for one time
slice, each on a CPU of its own; this preempts what runs there, and makes those
wait that wake up. ``RELAXED`` lets the turn of each end by itself; with
``STRICT`` all of them end together.
"""

from nova_vhpc_lab.sim.kernel import chance, credit_queue, timers
from nova_vhpc_lab.sim.kernel.compiled import inner
from nova_vhpc_lab.sim.kernel.credit_queue import BOOST
from nova_vhpc_lab.sim.kernel.eevdf import mark
from nova_vhpc_lab.sim.kernel.layout import first_cpu, may_run
from nova_vhpc_lab.sim.kernel.state import STRICT


@inner
def _target(s, t):
    """Return the CPU for a sibling that waits, or -1.

    One that runs no sibling: its own, rather than others; but one that it
    preempts, rather than its own.
    """
    k = s.k[0]
    own = s.threads[t].cpu
    first = first_cpu(s, own)
    second_best = -1
    for step in range(k.per_host):
        cpu = first + (own - first + step) % k.per_host
        if s.cpus[cpu].gang == k.stamp or not may_run(s, t, cpu):
            continue
        curr = s.cpus[cpu].curr
        if curr < 0 or s.credits[curr].pri < BOOST:
            return cpu
        if second_best < 0:
            second_best = cpu
    return second_best


@inner
def _next_sibling(s, vm):
    """Return the sibling of most credits that waits in a queue, or -1.

    A VM may have more vCPUs than the host has CPUs.
    """
    best = -1
    for t in range(vm.begin, vm.end):
        if (
            s.credits[t].queued
            and s.threads[t].tried != s.k[0].stamp
            and (best < 0 or s.credits[t].credit > s.credits[best].credit)
        ):
            best = t
    return best


@inner
def _join(s, t, cpu):
    s.credits[t].together = True
    s.credits[t].pri = BOOST
    s.cpus[cpu].gang = s.k[0].stamp


@inner
def gather(s, t):
    """Have the siblings of a vCPU whose turn begins run beside it."""
    k = s.k[0]
    vm = s.vms[s.threads[t].vm]
    end = s.cpus[s.threads[t].cpu].slice_end
    k.stamp += 1
    for sibling in range(vm.begin, vm.end):
        cpu = s.threads[sibling].cpu
        if s.cpus[cpu].curr == sibling:
            _join(s, sibling, cpu)
            if vm.together == STRICT:
                s.cpus[cpu].slice_end = end
                timers.arm(s, timers.slice_timer(s, cpu), end)
    while True:
        sibling = _next_sibling(s, vm)
        if sibling < 0:
            return
        s.threads[sibling].tried = k.stamp
        target = _target(s, sibling)
        if target < 0:
            continue
        credit_queue.remove(s, sibling)
        if target != s.threads[sibling].cpu:
            credit_queue.relocate(s, sibling, target)
        _join(s, sibling, target)
        credit_queue.insert(s, sibling)
        curr = s.cpus[target].curr
        if curr < 0 or s.credits[curr].pri < BOOST:
            mark(s, target)


@inner
def leave(s, t):
    """Give a vCPU the priority of its credits again."""
    if s.credits[t].together:
        s.credits[t].together = False
        s.credits[t].pri = credit_queue.by_credit(s, t)


@inner
def end_turn(s, t):
    """End the turn of a vCPU; if strict, that of its siblings, too."""
    if not s.credits[t].together:
        return
    vm = s.vms[s.threads[t].vm]
    leave(s, t)
    if vm.together != STRICT:
        return
    # Which CPU chooses first is chance: its choice may begin the next turn.
    count = vm.end - vm.begin
    offset = int(count * chance.uniform(s))
    for number in range(count):
        sibling = vm.begin + (number + offset) % count
        if not s.credits[sibling].together:
            continue
        leave(s, sibling)
        cpu = s.threads[sibling].cpu
        if s.credits[sibling].queued:
            credit_queue.remove(s, sibling)
            credit_queue.insert(s, sibling)
        elif s.cpus[cpu].curr == sibling:
            s.cpus[cpu].slice_end = s.k[0].now
            mark(s, cpu)
