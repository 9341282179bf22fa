# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What a thread does while it executes, by kind of program."""

from nova_vhpc_lab.sim.kernel import barriers, chance, timers
from nova_vhpc_lab.sim.kernel.compiled import inner
from nova_vhpc_lab.sim.kernel.state import (
    BARRIER,
    HOG,
    NEVER,
    RUNNABLE,
    THROTTLED,
)


@inner
def start(s, t, cost):
    """Have a thread execute from now on.

    :param cost: time that it loses before, in nanoseconds.
    """
    thread = s.threads[t]
    if thread.executing or s.cpus[thread.cpu].stalled:
        return
    if thread.kind == BARRIER:
        barriers.advance(s, thread.barrier)
        if thread.work_left > 0:
            thread.work_left += cost
        barriers.execute(s, t, True)
        return
    thread.executing = True
    thread.exec_since = s.k[0].now
    if thread.kind == HOG:
        thread.done -= cost
        return
    thread.work_left += cost
    timers.arm(
        s, timers.program_timer(s, t), s.k[0].now + max(1, thread.work_left)
    )


@inner
def stop(s, t):
    """Have a thread execute no longer: preempted, asleep or disturbed."""
    thread = s.threads[t]
    if not thread.executing:
        return
    if thread.kind == BARRIER:
        barriers.execute(s, t, False)
        return
    thread.executing = False
    passed = s.k[0].now - thread.exec_since
    thread.done += passed
    if thread.kind != HOG:
        thread.work_left = max(0, thread.work_left - passed)
        timers.arm(s, timers.program_timer(s, t), NEVER)


@inner
def switch(s, cpu, t):
    """Have a CPU execute another thread, or none (-1)."""
    k = s.k[0]
    this = s.cpus[cpu]
    before = this.curr
    if before >= 0:
        stop(s, before)
        thread = s.threads[before]
        thread.last_ran = k.now
        if thread.state in (RUNNABLE, THROTTLED):
            # Linux counts the time without quota as waiting, too.
            thread.wait_since = k.now
    this.curr = t
    if t < 0:
        this.idle_since = k.now
        return
    if before < 0:
        # update_avg(): an eighth of the new figure.
        idle = min(k.now - this.idle_since, 4_000_000)
        this.avg_idle += (idle - this.avg_idle) // 8
    thread = s.threads[t]
    thread.exec_start = k.now
    thread.wait += k.now - thread.wait_since
    thread.runs += 1
    cost = k.switch_cost
    if thread.woken_at >= 0:
        cost += k.wake_cost
        chance.record(s.wakeups[thread.vm], k.now - thread.woken_at)
        thread.woken_at = -1
    start(s, t, cost)
