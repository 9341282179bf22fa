# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Xen's credit scheduler: run queues, priorities, stealing and wake-ups.

``xen/common/sched_credit.c`` of Xen 4.2, the version of the ATC paper. A CPU
runs the first vCPU of its queue for a time slice; the queue is in order of
priority, first come first served within each. A CPU whose next vCPU has used
up its credits looks for one that has not in the queues of the others.
"""

from nova_vhpc_lab.sim.kernel import (
    credit_gang,
    credit_queue,
    execution,
    timers,
)
from nova_vhpc_lab.sim.kernel.compiled import inner
from nova_vhpc_lab.sim.kernel.credit_queue import BOOST, IDLE, OVER, UNDER
from nova_vhpc_lab.sim.kernel.eevdf import mark
from nova_vhpc_lab.sim.kernel.layout import first_cpu, may_run
from nova_vhpc_lab.sim.kernel.state import (
    APART,
    NEVER,
    RUNNABLE,
    SLEEPING,
    THROTTLED,
)


@inner
def charge(s, cpu):
    """Take the credits of what runs there (``burn_credits``)."""
    t = s.cpus[cpu].curr
    if t < 0:
        return
    thread = s.threads[t]
    passed = s.k[0].now - thread.exec_start
    thread.exec_start = s.k[0].now
    thread.run += passed
    s.credits[t].credit -= passed


@inner
def _steal(s, cpu, pri):
    """Take a vCPU of higher priority from the queue of another CPU.

    Its own socket's CPUs come first (``csched_load_balance``).

    :returns: the vCPU, or -1.
    """
    k = s.k[0]
    first = first_cpu(s, cpu)
    for other_sockets in range(2):
        for step in range(1, k.per_host):
            peer = first + (cpu - first + step) % k.per_host
            if (peer // k.per_socket != cpu // k.per_socket) != (
                other_sockets == 1
            ) or s.cpus[peer].curr < 0:
                # An idle CPU is about to take its work itself.
                continue
            t = s.cpus[peer].first
            while t >= 0 and s.credits[t].pri > pri:
                if may_run(s, t, cpu):
                    credit_queue.remove(s, t)
                    credit_queue.relocate(s, t, cpu)
                    return t
                t = s.credits[t].next
    return -1


@inner
def _slice(s, t):
    """Return the time slice of a vCPU."""
    own = s.vms[s.threads[t].vm].slice
    return own if own > 0 else s.k[0].slice


@inner
def schedule(s, cpu):
    """Choose what a CPU runs, and for how long (``csched_schedule``)."""
    k = s.k[0]
    this = s.cpus[cpu]
    charge(s, cpu)
    this.resched = False
    before = this.curr
    if before >= 0 and s.threads[before].state == RUNNABLE:
        mine = s.credits[before]
        if not mine.migrating:
            if mine.since + k.ratelimit > k.now:
                timers.arm(
                    s, timers.slice_timer(s, cpu), mine.since + k.ratelimit
                )
                return
            credit_queue.insert(s, before)
    t = this.first
    pri = IDLE if t < 0 else s.credits[t].pri
    stolen = _steal(s, cpu, pri) if pri <= OVER else -1
    if stolen >= 0:
        t = stolen
    elif t >= 0:
        credit_queue.remove(s, t)
    this.slice_end = NEVER if t < 0 else k.now + _slice(s, t)
    timers.arm(s, timers.slice_timer(s, cpu), this.slice_end)
    if t != before:
        execution.switch(s, cpu, t)
        if t >= 0:
            s.credits[t].since = k.now
        if before >= 0 and s.credits[before].migrating:
            _arrive(s, before)
    if (
        t >= 0
        and s.vms[s.threads[t].vm].together != APART
        and not s.credits[t].together
        and s.credits[t].pri > OVER
    ):
        credit_gang.gather(s, t)


@inner
def slice_over(s, cpu):
    """A time slice ends, or the time before which none is preempted."""
    mark(s, cpu)
    t = s.cpus[cpu].curr
    if t >= 0 and s.k[0].now >= s.cpus[cpu].slice_end:
        credit_gang.end_turn(s, t)


@inner
def _arrive(s, t):
    """Queue a vCPU that left its CPU on another (``csched_cpu_pick``)."""
    s.credits[t].migrating = False
    if s.threads[t].state == RUNNABLE:
        cpu = credit_queue.pick(s, t)
        if cpu != s.threads[t].cpu:
            credit_queue.relocate(s, t, cpu)
        enqueue(s, t)


@inner
def enqueue(s, t):
    """Queue a vCPU and have a CPU look at it (``__runq_tickle``)."""
    k = s.k[0]
    credit_queue.insert(s, t)
    cpu = s.threads[t].cpu
    curr = s.cpus[cpu].curr
    if curr < 0:
        mark(s, cpu)
        return
    first = first_cpu(s, cpu)
    preempts = s.credits[t].pri > s.credits[curr].pri
    for step in range(1, k.per_host):
        other = first + (cpu - first + step) % k.per_host
        if s.cpus[other].curr >= 0 or s.cpus[other].resched:
            continue
        if may_run(s, t, other):
            # It steals the vCPU.
            mark(s, other)
            return
        if preempts and may_run(s, curr, other):
            s.credits[curr].migrating = True
    if preempts:
        mark(s, cpu)


@inner
def start(s, t):
    """Begin a vCPU, or wake one up: the latter gets BOOST."""
    credit_queue.count(s, t, 1)
    if s.credits[t].pri == UNDER:
        s.credits[t].pri = BOOST
    enqueue(s, t)


@inner
def wake(s, t):
    """Wake a vCPU on the CPU where it was (``csched_vcpu_wake``)."""
    thread = s.threads[t]
    if s.cpus[thread.cpu].curr == t:
        # It had not even left its CPU yet.
        credit_queue.count(s, t, 1)
        execution.start(s, t, 0)
        return
    if s.credits[t].parked:
        thread.state = THROTTLED
        return
    start(s, t)


@inner
def sleep(s, t):
    """Have a running vCPU leave its CPU."""
    credit_gang.leave(s, t)
    credit_queue.count(s, t, -1)
    mark(s, s.threads[t].cpu)


@inner
def withdraw(s, t):
    """Take a vCPU that is to run no more from its CPU or its queue."""
    thread = s.threads[t]
    credit_gang.leave(s, t)
    if s.credits[t].queued:
        credit_queue.remove(s, t)
    if thread.state == RUNNABLE:
        credit_queue.count(s, t, -1)
    if s.cpus[thread.cpu].curr == t:
        charge(s, thread.cpu)
        mark(s, thread.cpu)


@inner
def park(s, t):
    """Stop a vCPU whose VM has had what its cap allows."""
    s.credits[t].parked = True
    if s.threads[t].state == RUNNABLE:
        withdraw(s, t)
        s.threads[t].state = THROTTLED


@inner
def unpark(s, t):
    s.credits[t].parked = False
    if s.threads[t].state == THROTTLED:
        s.threads[t].state = RUNNABLE
        credit_queue.count(s, t, 1)
        enqueue(s, t)


@inner
def repin(s, t):
    """Move a vCPU off a CPU where it may be no longer."""
    thread = s.threads[t]
    if s.cpus[thread.cpu].curr == t and thread.state == RUNNABLE:
        s.credits[t].migrating = True
        mark(s, thread.cpu)
        return
    queued = s.credits[t].queued
    if queued:
        credit_queue.remove(s, t)
    credit_queue.relocate(s, t, credit_queue.pick(s, t))
    if queued:
        enqueue(s, t)


@inner
def set_quota(s, t, period, quota):
    """Set a vCPU's part of its VM's cap; 0 for none."""
    thread = s.threads[t]
    thread.period = period
    thread.quota = max(0, quota)
    if quota <= 0 and s.credits[t].parked:
        unpark(s, t)
        if thread.state == SLEEPING:
            s.credits[t].pri = UNDER
