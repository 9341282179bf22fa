# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Migration of threads from CPU to CPU, with their lag and load average."""

from nova_vhpc_lab.sim.kernel import eevdf, execution, layout, load
from nova_vhpc_lab.sim.kernel.compiled import inner


@inner
def move(s, t, cpu):
    """Move a thread that does not run to another CPU."""
    k = s.k[0]
    thread = s.threads[t]
    eevdf.update_curr(s, thread.cpu)
    old = layout.queue_of(s, thread.group, thread.cpu)
    on = s.entities[t].on
    if on:
        eevdf.dequeue(s, t, False)
    detach(s, t)
    eevdf.update_weights(s, old)
    thread.cpu = cpu
    attach(s, t)
    k.migrations += 1
    if on:
        eevdf.enqueue(s, t, False)


@inner
def detach(s, t):
    """Take a thread's load average along (``detach_entity_load_avg``)."""
    k = s.k[0]
    q = layout.queue_of(s, s.threads[t].group, s.threads[t].cpu)
    part = s.entities[t].weight * load.update_entity(s, t)
    load.update_queue(s, q)
    queue = s.queues[q]
    queue.load_avg = max(0.0, queue.load_avg - part)
    load.update_queue(s, q)
    while q >= k.cpus:
        e = k.max_threads + q
        if s.queues[q].nr:
            return
        # The group goes with its last thread.
        was = s.entities[e].weight * load.update_entity(s, e)
        left = 0.0
        if s.queues[q].load_avg > 1.0:
            left = was * s.queues[q].load_avg / (s.queues[q].load_avg + part)
        s.entities[e].runnable = left / s.entities[e].weight
        part = was - left
        q = s.entities[e].queue
        load.update_queue(s, q)
        s.queues[q].load_avg = max(0.0, s.queues[q].load_avg - part)
        load.update_queue(s, q)


@inner
def attach(s, t):
    """Give a thread's load average to its new CPU."""
    k = s.k[0]
    q = layout.queue_of(s, s.threads[t].group, s.threads[t].cpu)
    part = s.entities[t].weight * load.update_entity(s, t)
    fraction = s.entities[t].runnable
    load.update_queue(s, q)
    s.queues[q].load_avg += part
    load.update_queue(s, q)
    while q >= k.cpus:
        e = k.max_threads + q
        had = load.update_entity(s, e)
        now = max(had, fraction)
        s.entities[e].runnable = now
        part = s.entities[e].weight * (now - had)
        q = s.entities[e].queue
        load.update_queue(s, q)
        s.queues[q].load_avg += part
        load.update_queue(s, q)


@inner
def move_running(s, t, cpu):
    """Move a thread off the CPU that it runs on (``migration_cpu_stop``)."""
    k = s.k[0]
    old = s.threads[t].cpu
    eevdf.update_curr(s, old)
    execution.stop(s, t)
    eevdf.set_current(s, t, False)
    s.cpus[old].curr = -1
    s.cpus[old].idle_since = k.now
    s.threads[t].last_ran = s.threads[t].wait_since = k.now
    move(s, t, cpu)
    eevdf.mark(s, old)
    eevdf.mark(s, cpu)
