# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What happens when a timer fires."""

from nova_vhpc_lab.sim.kernel import (
    balance,
    barriers,
    chance,
    credit,
    credit_account,
    eevdf,
    execution,
    layout,
    timers,
    wakeup,
)
from nova_vhpc_lab.sim.kernel.compiled import inner
from nova_vhpc_lab.sim.kernel.state import (
    CREDIT,
    IO,
    MAX_REQUESTS,
    NEVER,
    SERVER,
    SLEEPING,
    THROTTLED,
)


@inner
def tick(s, cpu):
    """The tick of one CPU (``task_tick_fair``, ``sched_balance_trigger``)."""
    k = s.k[0]
    this = s.cpus[cpu]
    if k.scheduler == CREDIT:
        credit_account.tick(s, cpu)
        return
    timers.arm(s, timers.tick_timer(s, cpu), k.now + k.tick)
    this.jiffy += 1
    t = this.curr
    if t >= 0:
        eevdf.update_curr(s, cpu)
        q = layout.queue_of(s, s.threads[t].group, cpu)
        eevdf.update_weights(s, q)
    balance.periodic(s, cpu)


@inner
def noise(s, cpu):
    """Something else takes a CPU for a short time, or gives it back."""
    k = s.k[0]
    this = s.cpus[cpu]
    timer = timers.noise_timer(s, cpu)
    if this.stalled:
        this.stalled = False
        if this.curr >= 0:
            execution.start(s, this.curr, 0)
        timers.arm(s, timer, k.now + chance.exponential(s, k.noise_every))
        return
    if this.curr >= 0:
        execution.stop(s, this.curr)
    this.stalled = True
    lasts = chance.exponential(s, k.noise_lasts)
    this.stolen += lasts
    timers.arm(s, timer, k.now + lasts)


@inner
def barrier(s, b):
    """Members go to sleep at a barrier, or are woken by the last one."""
    this = s.barriers[b]
    waker = -1
    t = this.head
    while t >= 0:
        if (
            s.threads[t].executing
            and s.threads[t].work_left > 0
            and this.flight == 0
        ):
            waker = s.threads[t].cpu
        t = s.member[t]
    barriers.advance(s, b)
    if this.released:
        this.released = False
        t = this.head
        while t >= 0:
            if s.threads[t].blocked:
                s.threads[t].blocked = False
                this.blocked -= 1
                wakeup.wake(s, t, waker)
            t = s.member[t]
    t = this.head
    while t >= 0:
        thread = s.threads[t]
        if (
            this.spin >= 0
            and thread.executing
            and thread.work_left == 0
            and thread.spun >= thread.spin
            and not thread.blocked
        ):
            thread.blocked = True
            this.blocked += 1
            wakeup.sleep(s, t)
        t = s.member[t]
    barriers.watch(s, b)


@inner
def _serve(s, t, arrived):
    thread = s.threads[t]
    thread.request_at = arrived
    thread.work_left = chance.around(s, thread.work, thread.spread)


@inner
def request(s, v):
    """A request arrives at a server."""
    k = s.k[0]
    vm = s.vms[v]
    if vm.arrival > 0:
        timers.arm(
            s,
            timers.request_timer(s, v),
            k.now + chance.around(s, vm.arrival, vm.arrival_spread),
        )
    for t in range(vm.begin, vm.end):
        thread = s.threads[t]
        if (
            thread.kind == SERVER
            and thread.state == SLEEPING
            and thread.request_at < 0
        ):
            _serve(s, t, k.now)
            wakeup.wake(s, t, -1)
            return
    if vm.queued >= MAX_REQUESTS:
        vm.lost += 1
        return
    s.arrivals[v, (vm.first + vm.queued) % MAX_REQUESTS] = k.now
    vm.queued += 1


@inner
def _finish_request(s, t):
    thread = s.threads[t]
    vm = s.vms[thread.vm]
    chance.record(s.responses[thread.vm], s.k[0].now - thread.request_at)
    vm.requests += 1
    vm.io_events += 2
    if vm.queued:
        _serve(s, t, s.arrivals[thread.vm, vm.first])
        vm.first = (vm.first + 1) % MAX_REQUESTS
        vm.queued -= 1
        execution.start(s, t, 0)
        return
    thread.request_at = -1
    wakeup.sleep(s, t)


@inner
def next_step(s, t):
    """Give a thread its next piece of work, and return how long it sleeps."""
    k = s.k[0]
    thread = s.threads[t]
    if thread.kind == IO:
        if k.now >= thread.phase_end:
            thread.phase = 1 - thread.phase
            thread.phase_end = k.now + (
                thread.phase_io if thread.phase else thread.phase_work
            )
        if thread.phase == 0:
            # Computes until the phase ends, then has no need to sleep.
            thread.work_left = max(1, thread.phase_end - k.now)
            return 0
        s.vms[thread.vm].io_events += thread.io_each
    thread.work_left = chance.around(s, thread.work, thread.spread)
    return chance.around(s, thread.sleep, thread.spread)


@inner
def program(s, t):
    """A thread's piece of work is done, or its sleep over."""
    k = s.k[0]
    thread = s.threads[t]
    if thread.state == SLEEPING:
        wakeup.wake(s, t, -1)
        return
    if not thread.executing:
        return
    execution.stop(s, t)
    if thread.kind == SERVER:
        _finish_request(s, t)
        return
    sleeps = next_step(s, t)
    if sleeps == 0:
        execution.start(s, t, 0)
        return
    wakeup.sleep(s, t)
    timers.arm(s, timers.program_timer(s, t), k.now + sleeps)


@inner
def quota(s, t):
    """A new period of a thread's quota (``sched_cfs_period_timer``)."""
    k = s.k[0]
    thread = s.threads[t]
    if thread.quota <= 0:
        timers.arm(s, timers.quota_timer(s, t), NEVER)
        return
    timers.arm(s, timers.quota_timer(s, t), k.now + thread.period)
    if s.cpus[thread.cpu].curr == t:
        eevdf.update_curr(s, thread.cpu)
    thread.pool = thread.quota
    if thread.state == THROTTLED:
        # distribute_cfs_runtime(): as much as makes it run again.
        given = min(thread.pool, 1 - thread.budget)
        thread.budget += given
        thread.pool -= given
        if thread.budget > 0:
            wakeup.unthrottle(s, t)


@inner
def fire(s, timer):
    """Handle the timer that is due."""
    k = s.k[0]
    cpus, threads = k.cpus, k.max_threads
    if timer < cpus:
        tick(s, timer)
        return
    timer -= cpus
    if timer < cpus:
        timers.arm(s, timer + cpus, NEVER)
        noise(s, timer)
        return
    timer -= cpus
    if timer < threads:
        timers.arm(s, timers.program_timer(s, timer), NEVER)
        program(s, timer)
        return
    timer -= threads
    if timer < threads:
        quota(s, timer)
        return
    timer -= threads
    if timer < k.max_barriers:
        timers.arm(s, timers.barrier_timer(s, timer), NEVER)
        barrier(s, timer)
        return
    timer -= k.max_barriers
    if timer < k.max_barriers:
        request(s, timer)
        return
    timer -= k.max_barriers
    if timer < cpus:
        timers.arm(s, timers.slice_timer(s, timer), NEVER)
        credit.slice_over(s, timer)
        return
    credit_account.account(s, timer - cpus)
