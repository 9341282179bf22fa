# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What is done to a host from outside: VMs come and go, values are written."""

from nova_vhpc_lab.sim.kernel import (
    barriers,
    chance,
    credit,
    credit_account,
    credit_queue,
    eevdf,
    execution,
    layout,
    migrate,
    switch,
    timers,
    wakeup,
)
from nova_vhpc_lab.sim.kernel.compiled import inner
from nova_vhpc_lab.sim.kernel.state import (
    ABSENT,
    BARRIER,
    CREDIT,
    ENDED,
    HOG,
    NEVER,
    RUNNABLE,
    SERVER,
    SLEEPING,
    THROTTLED,
)


@inner
def boot(s):
    """Start the ticks and the noise of each CPU, each in its own phase."""
    k = s.k[0]
    for cpu in range(k.cpus):
        s.cpus[cpu].curr = -1
        s.cpus[cpu].avg_idle = 1_000_000
        timers.arm(
            s, timers.tick_timer(s, cpu), int(k.tick * chance.uniform(s))
        )
        if k.noise_every > 0:
            timers.arm(
                s,
                timers.noise_timer(s, cpu),
                chance.exponential(s, k.noise_every),
            )
        for level in range(2):
            domain = s.domains[cpu, level]
            domain.interval = k.per_socket if level == 0 else k.per_host
            domain.last = -int(chance.uniform(s) * domain.interval)
    if k.scheduler == CREDIT:
        credit_account.boot(s)


@inner
def _cpus_of(s, g):
    """Return the CPUs of a group's host."""
    per_host = s.k[0].per_host
    first = s.groups[g].host * per_host
    return range(first, first + per_host)


@inner
def add_group(s, g):
    """Prepare the queues of a group whose record is filled."""
    k = s.k[0]
    for cpu in _cpus_of(s, g):
        q = layout.queue_of(s, g, cpu)
        queue = s.queues[q]
        queue.head = queue.curr = -1
        queue.load_at = k.now
        entity = s.entities[k.max_threads + q]
        entity.mine = q
        entity.queue = layout.queue_of(s, s.groups[g].parent, cpu)
        entity.weight = s.groups[g].weight
        entity.runnable_at = k.now


@inner
def _add_to_host(s, t):
    host = s.hosts[s.groups[s.threads[t].group].host]
    if host.first_thread < 0:
        host.first_thread = t
    else:
        s.threads[host.last_thread].next_on_host = t
    host.last_thread = t
    s.threads[t].next_on_host = -1


@inner
def start_thread(s, t):
    """Begin a thread on the CPU of the fewest (``wake_up_new_task``)."""
    k = s.k[0]
    thread = s.threads[t]
    entity = s.entities[t]
    entity.mine = -1
    s.credits[t].pri = credit_queue.UNDER
    entity.runnable = 1.0
    entity.runnable_at = k.now
    best = -1
    fewest = 0.0
    for cpu in _cpus_of(s, thread.group):
        if layout.may_run(s, t, cpu):
            # VMs of many vCPUs start one on each CPU.
            own = s.queues[layout.queue_of(s, thread.group, cpu)].runnable
            count = (
                s.queues[cpu].runnable + 0.5 * own + 0.4 * chance.uniform(s)
            )
            if best < 0 or count < fewest:
                best = cpu
                fewest = count
    thread.cpu = best
    _add_to_host(s, t)
    entity.queue = layout.queue_of(s, thread.group, best)
    thread.woken_at = -1
    thread.request_at = -1
    thread.wait_since = k.now
    thread.last_ran = k.now - 1_000_000_000
    if thread.kind == BARRIER:
        barriers.advance(s, thread.barrier)
        barrier = s.barriers[thread.barrier]
        s.member[t] = barrier.head
        barrier.head = t
        barrier.members += 1
        thread.work_left = chance.around(s, barrier.work, barrier.spread)
        barriers.watch(s, thread.barrier)
    elif thread.kind == ABSENT or thread.kind == SERVER:
        thread.state = SLEEPING
        entity.runnable = 0.0
        return
    elif thread.kind != HOG:
        # Timers of different threads are not in step.
        thread.phase = 1
        thread.work_left = chance.around(s, thread.work, thread.spread)
        thread.phase_end = k.now + int(thread.phase_io * chance.uniform(s))
        thread.state = SLEEPING
        timers.arm(
            s,
            timers.program_timer(s, t),
            k.now + 1 + int(thread.sleep * chance.uniform(s)),
        )
        return
    thread.state = RUNNABLE
    if k.scheduler == CREDIT:
        credit.start(s, t)
        return
    migrate.attach(s, t)
    eevdf.enqueue(s, t, True)
    switch.preempt(s, t)


@inner
def _take_out(s, t):
    """Take a thread that ends from its CPU and its queues."""
    cpu = s.threads[t].cpu
    if s.entities[t].on:
        if s.entities[t].delayed:
            eevdf.drop_delayed(s, t)
        else:
            eevdf.dequeue(s, t, False)
    if s.cpus[cpu].curr == t:
        eevdf.mark(s, cpu)
    migrate.detach(s, t)


@inner
def end_thread(s, t):
    """End a thread."""
    thread = s.threads[t]
    execution.stop(s, t)
    if s.k[0].scheduler == CREDIT:
        credit.withdraw(s, t)
        s.credits[t].active = False
    else:
        _take_out(s, t)
    thread.state = ENDED
    timers.arm(s, timers.program_timer(s, t), NEVER)
    timers.arm(s, timers.quota_timer(s, t), NEVER)
    if thread.kind == BARRIER:
        _leave_barrier(s, t)


@inner
def _leave_barrier(s, t):
    barrier = s.barriers[s.threads[t].barrier]
    if s.threads[t].blocked:
        barrier.blocked -= 1
    barrier.members -= 1
    if barrier.head == t:
        barrier.head = s.member[t]
    else:
        before = barrier.head
        while s.member[before] != t:
            before = s.member[before]
        s.member[before] = s.member[t]
    if barrier.members:
        barriers.watch(s, s.threads[t].barrier)
    else:
        timers.arm(s, timers.barrier_timer(s, s.threads[t].barrier), NEVER)


@inner
def set_weight(s, g, weight):
    """Write a group's weight (``sched_group_set_shares``).

    No CPU chooses anew at once: the weights take effect at its next tick.
    """
    s.groups[g].weight = weight
    if s.k[0].scheduler == CREDIT:
        return
    for cpu in _cpus_of(s, g):
        eevdf.update_curr(s, cpu)
        eevdf.update_weights(s, layout.queue_of(s, g, cpu))


@inner
def set_idle(s, g, idle):
    """Write a group's ``cpu.idle`` (``sched_group_set_idle``).

    Setting it back leaves the default weight.
    """
    k = s.k[0]
    group = s.groups[g]
    if group.idle == idle:
        return
    group.idle = idle
    group.weight = 1024.0
    for cpu in _cpus_of(s, g):
        eevdf.update_curr(s, cpu)
        q = layout.queue_of(s, g, cpu)
        threads = s.queues[q].runnable
        s.queues[q].runnable_idle = threads if idle else 0
        above = q
        while above >= k.cpus:
            above = s.entities[k.max_threads + above].queue
            s.queues[above].runnable_idle += threads if idle else -threads
        eevdf.update_weights(s, q)


@inner
def repin(s, t):
    """Move a thread if it is on a CPU where it may be no longer."""
    thread = s.threads[t]
    if layout.may_run(s, t, thread.cpu):
        return
    if s.k[0].scheduler == CREDIT:
        credit.repin(s, t)
        return
    if s.entities[t].delayed:
        eevdf.drop_delayed(s, t)
    cpu = wakeup.first_allowed(s, t)
    if s.cpus[thread.cpu].curr == t and thread.state == RUNNABLE:
        migrate.move_running(s, t, cpu)
        return
    migrate.move(s, t, cpu)
    if thread.state == RUNNABLE:
        switch.preempt(s, t)


@inner
def set_quota(s, t, period, quota):
    """Set a thread's quota; 0 for none (``tg_set_cfs_bandwidth``)."""
    k = s.k[0]
    if k.scheduler == CREDIT:
        credit.set_quota(s, t, period, quota)
        return
    thread = s.threads[t]
    eevdf.update_curr(s, thread.cpu)
    was = thread.quota
    thread.quota = quota
    thread.period = period
    if quota <= 0:
        thread.budget = thread.pool = 0
        timers.arm(s, timers.quota_timer(s, t), NEVER)
        if thread.state == THROTTLED:
            wakeup.unthrottle(s, t)
        return
    thread.pool = quota
    if was <= 0:
        timers.arm(
            s,
            timers.quota_timer(s, t),
            k.now + 1 + int(period * chance.uniform(s)),
        )
    if thread.state == THROTTLED:
        eevdf.refill(s, t)
        if thread.budget > 0:
            wakeup.unthrottle(s, t)
