# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The run queues of Xen's credit scheduler: one per CPU, by priority."""

from nova_vhpc_lab.sim.kernel import layout
from nova_vhpc_lab.sim.kernel.compiled import inner
from nova_vhpc_lab.sim.kernel.state import RUNNABLE

#: CSCHED_PRI_TS_*
BOOST, UNDER, OVER, IDLE = 0, -1, -2, -64


@inner
def by_credit(s, t):
    """Return the priority that a vCPU's credits give it."""
    return OVER if s.credits[t].credit < 0.0 else UNDER


@inner
def insert(s, t):
    """Queue a vCPU behind those of its priority (``__runq_insert``)."""
    mine = s.credits[t]
    cpu = s.threads[t].cpu
    before = -1
    after = s.cpus[cpu].first
    while after >= 0 and s.credits[after].pri >= mine.pri:
        before = after
        after = s.credits[after].next
    mine.prev = before
    mine.next = after
    mine.queued = True
    if before >= 0:
        s.credits[before].next = t
    else:
        s.cpus[cpu].first = t
    if after >= 0:
        s.credits[after].prev = t


@inner
def remove(s, t):
    """Take a vCPU from its queue."""
    mine = s.credits[t]
    if mine.prev >= 0:
        s.credits[mine.prev].next = mine.next
    else:
        s.cpus[s.threads[t].cpu].first = mine.next
    if mine.next >= 0:
        s.credits[mine.next].prev = mine.prev
    mine.queued = False


@inner
def sort(s, cpu):
    """Sort a queue, first come first served (``csched_runq_sort``)."""
    t = s.cpus[cpu].first
    s.cpus[cpu].first = -1
    while t >= 0:
        after = s.credits[t].next
        insert(s, t)
        t = after


@inner
def count(s, t, change):
    """Count a runnable vCPU of a CPU in or out."""
    thread = s.threads[t]
    s.queues[thread.cpu].runnable += change
    q = layout.queue_of(s, thread.group, thread.cpu)
    if q != thread.cpu:
        s.queues[q].runnable += change


@inner
def relocate(s, t, cpu):
    """Make another CPU that of a vCPU in no queue."""
    thread = s.threads[t]
    if thread.state == RUNNABLE:
        count(s, t, -1)
    thread.cpu = cpu
    if thread.state == RUNNABLE:
        count(s, t, 1)
    s.k[0].migrations += 1


@inner
def pick(s, t):
    """Return the CPU for a vCPU that moves (``csched_cpu_pick``).

    Its own if that is idle, else an idle one, those of its socket first; else
    its own, or the one with the fewest vCPUs if it may not stay.
    """
    k = s.k[0]
    own = s.threads[t].cpu
    first = layout.first_cpu(s, own)
    idle = -1
    fewest = -1
    for step in range(k.per_host):
        cpu = first + (own - first + step) % k.per_host
        if not layout.may_run(s, t, cpu):
            continue
        runnable = s.queues[cpu].runnable
        if s.cpus[cpu].curr < 0 and runnable == 0:
            if cpu // k.per_socket == own // k.per_socket:
                return cpu
            if idle < 0:
                idle = cpu
        if fewest < 0 or runnable < s.queues[fewest].runnable:
            fewest = cpu
    if idle >= 0:
        return idle
    return own if layout.may_run(s, t, own) else fewest
