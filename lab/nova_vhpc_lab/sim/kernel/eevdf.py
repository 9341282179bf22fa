# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""EEVDF on one CPU: virtual time, lag, deadlines, and which entity is next.

``kernel/sched/fair.c``; features as shipped: PLACE_LAG, PLACE_REL_DEADLINE,
RUN_TO_PARITY, DELAY_DEQUEUE, DELAY_ZERO.
"""

from nova_vhpc_lab.sim.kernel import layout, load
from nova_vhpc_lab.sim.kernel.compiled import inner
from nova_vhpc_lab.sim.kernel.state import THROTTLED, UNIT


@inner
def mark(s, cpu):
    """Have the CPU choose again at the end of this event."""
    if not s.cpus[cpu].resched:
        s.cpus[cpu].resched = True
        s.pending[s.k[0].pending] = cpu
        s.k[0].pending += 1


@inner
def average(s, q):
    """Return the virtual time of a queue (``avg_vruntime``)."""
    queue = s.queues[q]
    if queue.nr == 0:
        return queue.origin
    base = queue.origin
    weights = 0.0
    total = 0.0
    e = queue.head
    while e >= 0:
        entity = s.entities[e]
        weights += entity.weight
        total += entity.weight * (entity.vruntime - base)
        e = entity.next
    queue.origin = base + total / weights
    return queue.origin


@inner
def eligible(s, q, e):
    return s.entities[e].vruntime <= average(s, q) + 1.0


@inner
def set_current(s, t, running):
    """Mark a thread's entities as running in their queues, or unmark them."""
    k = s.k[0]
    q = layout.queue_of(s, s.threads[t].group, s.threads[t].cpu)
    e = t
    while True:
        if running:
            s.queues[q].curr = e
            s.entities[e].protected = s.entities[e].deadline
        else:
            s.queues[q].curr = -1
        if q < k.cpus:
            return
        e = k.max_threads + q
        q = s.entities[e].queue


@inner
def link(s, q, e):
    queue = s.queues[q]
    entity = s.entities[e]
    load.update_queue(s, q)
    load.update_entity(s, e)
    entity.queue = q
    entity.prev = -1
    entity.next = queue.head
    if queue.head >= 0:
        s.entities[queue.head].prev = e
    queue.head = e
    queue.nr += 1
    queue.load += entity.weight
    entity.on = True


@inner
def unlink(s, q, e):
    queue = s.queues[q]
    entity = s.entities[e]
    load.update_queue(s, q)
    load.update_entity(s, e)
    if queue.nr == 1:
        queue.origin = entity.vruntime
    if entity.prev >= 0:
        s.entities[entity.prev].next = entity.next
    else:
        queue.head = entity.next
    if entity.next >= 0:
        s.entities[entity.next].prev = entity.prev
    queue.nr -= 1
    queue.load = queue.load - entity.weight if queue.nr else 0.0
    entity.on = False


@inner
def keep_lag(s, q, e):
    """Remember the lag of an entity (``update_entity_lag``)."""
    entity = s.entities[e]
    limit = max(2 * s.k[0].slice, s.k[0].tick) * UNIT / entity.weight
    lag = average(s, q) - entity.vruntime
    entity.lag = min(max(lag, -limit), limit)


@inner
def place(s, q, e, initial):
    """Place an entity that is not in the queue yet (``place_entity``)."""
    queue = s.queues[q]
    entity = s.entities[e]
    now = average(s, q)
    lag = 0.0
    if queue.nr and entity.lag != 0.0:
        lag = entity.lag * (queue.load + entity.weight) / queue.load
    entity.vruntime = now - lag
    if entity.relative:
        entity.deadline += entity.vruntime
        entity.relative = False
        return
    part = 0.5 if initial else 1.0
    entity.deadline = (
        entity.vruntime + part * s.k[0].slice * UNIT / entity.weight
    )


@inner
def reweight(s, e, weight):
    """Change an entity's weight (``reweight_entity``)."""
    entity = s.entities[e]
    old = entity.weight
    if weight == old:
        return
    q = entity.queue
    on = entity.on
    protected = entity.protected - entity.vruntime
    if on:
        keep_lag(s, q, e)
        entity.deadline -= entity.vruntime
        entity.relative = True
        # The load average changes at once: it is weight times part.
        unlink(s, q, e)
        s.queues[q].load_avg += (weight - old) * entity.runnable
        s.queues[q].load_avg = max(0.0, s.queues[q].load_avg)
    entity.lag *= old / weight
    if entity.relative:
        entity.deadline *= old / weight
    entity.weight = weight
    if on:
        place(s, q, e, False)
        entity.protected = entity.vruntime + protected * old / weight
        link(s, q, e)


@inner
def update_weights(s, q):
    """Update a queue's weight, and all above (``update_cfs_group``)."""
    k = s.k[0]
    while q >= k.cpus:
        load.update_queue(s, q)
        e = k.max_threads + q
        reweight(s, e, load.group_weight(s, q))
        q = s.entities[e].queue
    load.update_queue(s, q)


@inner
def refill(s, t):
    """Take a slice of the quota's pool (``assign_cfs_rq_runtime``)."""
    thread = s.threads[t]
    slice_ns = 5_000_000
    wanted = slice_ns - thread.budget
    taken = min(wanted, thread.pool)
    thread.budget += taken
    thread.pool -= taken


@inner
def update_curr(s, cpu):
    """Charge the running thread, and say whether its slice is over."""
    k = s.k[0]
    t = s.cpus[cpu].curr
    if t < 0:
        return
    thread = s.threads[t]
    passed = k.now - thread.exec_start
    if passed <= 0:
        return
    thread.exec_start = k.now
    thread.run += passed
    e = t
    while True:
        entity = s.entities[e]
        if not entity.on:
            break
        queue = s.queues[entity.queue]
        entity.vruntime += passed * UNIT / entity.weight
        if entity.vruntime >= entity.deadline:
            entity.deadline = entity.vruntime + k.slice * UNIT / entity.weight
            if queue.nr > 1:
                mark(s, cpu)
        elif entity.vruntime >= entity.protected and queue.nr > 1:
            mark(s, cpu)
        if entity.queue < k.cpus:
            break
        e = k.max_threads + entity.queue
    if thread.quota > 0:
        thread.budget -= passed
        if thread.budget <= 0:
            refill(s, t)
            if thread.budget <= 0:
                mark(s, cpu)


@inner
def earliest(s, q):
    """Return the eligible entity of the earliest deadline (``pick_eevdf``)."""
    queue = s.queues[q]
    if queue.nr == 1:
        return queue.head
    now = average(s, q) + 1.0
    curr = queue.curr
    if curr >= 0:
        entity = s.entities[curr]
        if (
            entity.on
            and entity.vruntime <= now
            and entity.vruntime < entity.protected
        ):
            return curr
    best = -1
    e = queue.head
    while e >= 0:
        entity = s.entities[e]
        if entity.vruntime <= now and (
            best < 0
            or entity.deadline < s.entities[best].deadline
            or (entity.deadline == s.entities[best].deadline and e == curr)
        ):
            best = e
        e = entity.next
    return best


@inner
def _count(s, t, change):
    """Count a runnable thread in or out, and update the groups' weights."""
    k = s.k[0]
    q = layout.queue_of(s, s.threads[t].group, s.threads[t].cpu)
    idle = False
    bottom = q
    while True:
        if s.groups[layout.group_of(s, q)].idle:
            idle = True
        s.queues[q].runnable += change
        if idle:
            s.queues[q].runnable_idle += change
        if q < k.cpus:
            break
        q = s.entities[k.max_threads + q].queue
    update_weights(s, bottom)


@inner
def enqueue(s, t, initial):
    """Put a thread into the queues of its CPU (``enqueue_task_fair``)."""
    k = s.k[0]
    thread = s.threads[t]
    update_curr(s, thread.cpu)
    e = t
    q = layout.queue_of(s, thread.group, thread.cpu)
    if s.entities[t].delayed:
        # requeue_delayed_entity(): DELAY_ZERO takes a positive lag away.
        load.update_entity(s, t)
        s.entities[t].delayed = False
        keep_lag(s, q, t)
        if s.entities[t].lag > 0.0:
            unlink(s, q, t)
            s.entities[t].lag = 0.0
            place(s, q, t, False)
            link(s, q, t)
        e = k.max_threads + q
        if q < k.cpus:
            e = -1
        else:
            q = s.entities[e].queue
    while e >= 0:
        entity = s.entities[e]
        if entity.on:
            if entity.delayed:
                load.update_entity(s, e)
                entity.delayed = False
                keep_lag(s, q, e)
                if entity.lag > 0.0:
                    unlink(s, q, e)
                    entity.lag = 0.0
                    place(s, q, e, False)
                    link(s, q, e)
            else:
                break
        else:
            place(s, q, e, initial)
            link(s, q, e)
        if q < k.cpus:
            break
        e = k.max_threads + q
        q = s.entities[e].queue
    _count(s, t, 1)


@inner
def _take_out(s, e, sleep, now_for_real):
    """Take an entity, and the groups that it empties, out of the queues."""
    k = s.k[0]
    while True:
        entity = s.entities[e]
        q = entity.queue
        if sleep and not now_for_real and not eligible(s, q, e):
            # It stays, and competes, until it has paid for what it had.
            load.update_entity(s, e)
            entity.delayed = True
            return
        keep_lag(s, q, e)
        if now_for_real:
            load.update_entity(s, e)
            entity.delayed = False
            if entity.lag > 0.0:
                entity.lag = 0.0
            now_for_real = False
        elif not sleep:
            entity.deadline -= entity.vruntime
            entity.relative = True
        unlink(s, q, e)
        if s.queues[q].curr == e:
            s.queues[q].curr = -1
        if s.queues[q].nr > 0 or q < k.cpus:
            return
        e = k.max_threads + q


@inner
def dequeue(s, t, sleep):
    """Take a thread out of the queues of its CPU (``dequeue_task_fair``)."""
    update_curr(s, s.threads[t].cpu)
    _take_out(s, t, sleep, False)
    _count(s, t, -1)


@inner
def drop_delayed(s, t):
    """Take a thread out that sleeps but is still in a queue."""
    _take_out(s, t, True, True)
    thread = s.threads[t]
    update_weights(s, layout.queue_of(s, thread.group, thread.cpu))


@inner
def pick(s, cpu):
    """Return the thread that runs next on a CPU, or -1."""
    k = s.k[0]
    while s.queues[cpu].nr:
        q = cpu
        while True:
            e = earliest(s, q)
            if s.entities[e].delayed:
                q = s.entities[e].queue
                _take_out(s, e, True, True)
                update_weights(s, q)
                break
            if e < k.max_threads:
                return e
            q = s.entities[e].mine
    return -1


@inner
def throttle(s, t):
    """Take a thread out until its next period (``throttle_cfs_rq``)."""
    thread = s.threads[t]
    thread.state = THROTTLED
    dequeue(s, t, False)
    mark(s, thread.cpu)


@inner
def cpu_idle(s, cpu):
    return s.cpus[cpu].curr < 0 and s.queues[cpu].runnable == 0


@inner
def only_idle_groups(s, cpu):
    """Return whether a CPU has idle groups only (``sched_idle_cpu``)."""
    queue = s.queues[cpu]
    return queue.runnable > 0 and queue.runnable == queue.runnable_idle
