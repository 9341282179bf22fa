# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Load averages (PELT) and the weights of group entities.

``___update_load_avg()``: averages decay by half in 32 ms; here continuously,
not in steps of 1,024 us.
"""

import math

from nova_vhpc_lab.sim.kernel import layout
from nova_vhpc_lab.sim.kernel.compiled import inner
from nova_vhpc_lab.sim.kernel.state import IDLE_WEIGHT, MIN_WEIGHT

_DECAY_PER_NS = math.log(2.0) / 32e6


@inner
def update_queue(s, q):
    """Bring the load average of a queue, and of its group, up to now."""
    queue = s.queues[q]
    now = s.k[0].now
    passed = now - queue.load_at
    if passed > 0:
        if queue.load_avg != queue.load:
            gap = queue.load_avg - queue.load
            if abs(gap) < 0.01:
                gap = 0.0
            queue.load_avg = queue.load + gap * math.exp(
                -passed * _DECAY_PER_NS
            )
        queue.load_at = now
    if queue.contributed != queue.load_avg:
        group = s.groups[layout.group_of(s, q)]
        group.load_avg += queue.load_avg - queue.contributed
        queue.contributed = queue.load_avg


@inner
def update_entity(s, e):
    """Bring the part of the time that an entity was runnable up to now."""
    entity = s.entities[e]
    now = s.k[0].now
    passed = now - entity.runnable_at
    if passed > 0:
        target = 1.0 if entity.on and not entity.delayed else 0.0
        if entity.runnable != target:
            gap = entity.runnable - target
            if abs(gap) < 1e-4:
                gap = 0.0
            entity.runnable = target + gap * math.exp(-passed * _DECAY_PER_NS)
        entity.runnable_at = now
    return entity.runnable


@inner
def group_weight(s, q):
    """Return the weight of the entity of a queue (``calc_group_shares``)."""
    queue = s.queues[q]
    group = s.groups[layout.group_of(s, q)]
    weight = IDLE_WEIGHT if group.idle else group.weight
    load = max(queue.load, queue.load_avg)
    whole = group.load_avg - queue.contributed + load
    share = weight * load / whole if whole > 0.0 else weight
    return min(max(share, MIN_WEIGHT), weight)


@inner
def hierarchical_load(s, q):
    """Return the part of a CPU's load that a queue is (``h_load``)."""
    k = s.k[0]
    part = 1.0
    while q >= k.cpus:
        e = k.max_threads + q
        q = s.entities[e].queue
        update_queue(s, q)
        part *= (
            s.entities[e].weight
            * update_entity(s, e)
            / (s.queues[q].load_avg + 1.0)
        )
    update_queue(s, q)
    return part * s.queues[q].load_avg


@inner
def thread_load(s, t):
    """Return what a thread adds to its CPU's load (``task_h_load``)."""
    q = layout.queue_of(s, s.threads[t].group, s.threads[t].cpu)
    update_queue(s, q)
    load = hierarchical_load(s, q)
    part = s.entities[t].weight * update_entity(s, t)
    return load * part / (s.queues[q].load_avg + 1.0)
