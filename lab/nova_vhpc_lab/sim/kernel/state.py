# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The arrays that hold the simulated hosts.

Times are integers in nanoseconds, virtual times floats in nanoseconds of a
thread of weight 1,024. A *queue* is the kernel's ``cfs_rq``: one per group and
CPU of the group's host, numbered by ``layout``. An *entity* is its
``sched_entity``: entity ``t`` is thread ``t``; entity ``MAX_THREADS + q``
stands for queue ``q`` in the queue of the parent group.
"""

from typing import Any, NamedTuple

import numpy as np

NEVER = 1 << 62
#: NICE_0_LOAD: the weight of a thread of nice 0, and the default shares.
UNIT = 1_024.0
#: WEIGHT_IDLEPRIO: the weight of a group whose ``cpu.idle`` is 1.
IDLE_WEIGHT = 3.0
#: MIN_SHARES: the least weight of a group's entity.
MIN_WEIGHT = 2.0

#: What a thread does.
HOG, BARRIER, TIMER, SERVER, IO, ABSENT = range(6)
#: What a thread waits for.
RUNNABLE, SLEEPING, THROTTLED, ENDED = range(4)

#: Which scheduler a host has.
EEVDF, CREDIT = range(2)
#: Whether siblings are scheduled together (``credit_gang``).
APART, RELAXED, STRICT = range(3)

BUCKETS = 640
MAX_REQUESTS = 4_096

_i, _f, _b = np.int64, np.float64, np.bool_

KERNEL = np.dtype(
    [
        ('now', _i),
        ('cpus', _i),
        ('per_host', _i),
        ('threads', _i),
        ('groups', _i),
        ('barriers', _i),
        ('vms', _i),
        ('pending', _i),
        ('max_threads', _i),
        ('max_barriers', _i),
        ('tick', _i),
        ('slice', _i),
        ('sockets', _i),
        ('per_socket', _i),
        ('switch_cost', _i),
        ('wake_cost', _i),
        ('noise_every', _i),
        ('noise_lasts', _i),
        ('stamp', _i),
        ('events', _i),
        ('migrations', _i),
        ('scheduler', _i),
        ('ratelimit', _i),
    ]
)
CPU = np.dtype(
    [
        ('curr', _i),
        ('resched', _b),
        ('stalled', _b),
        ('idle_since', _i),
        ('avg_idle', _i),
        ('jiffy', _i),
        ('stolen', _i),
        ('first', _i),
        ('sorted', _i),
        ('slice_end', _i),
        ('gang', _i),
    ]
)
#: The first and the last of a host's threads; under Xen the sum of its
#: credits, and how often and how many times they were accounted.
HOST = np.dtype(
    [
        ('first_thread', _i),
        ('last_thread', _i),
        ('balance', _f),
        ('period', _i),
        ('accounted', _i),
    ]
)
#: A scheduling domain of one CPU: its socket, or the whole host.
DOMAIN = np.dtype(
    [
        ('last', _i),
        ('interval', _i),
        ('failed', _i),
        ('imbalanced', _b),
    ]
)
QUEUE = np.dtype(
    [
        ('head', _i),
        ('nr', _i),
        ('curr', _i),
        ('load', _f),
        ('origin', _f),
        ('runnable', _i),
        ('runnable_idle', _i),
        ('load_avg', _f),
        ('load_at', _i),
        ('contributed', _f),
    ]
)
ENTITY = np.dtype(
    [
        ('vruntime', _f),
        ('deadline', _f),
        ('protected', _f),
        ('lag', _f),
        ('weight', _f),
        ('queue', _i),
        ('mine', _i),
        ('next', _i),
        ('prev', _i),
        ('on', _b),
        ('relative', _b),
        ('delayed', _b),
        ('runnable', _f),
        ('runnable_at', _i),
    ]
)
GROUP = np.dtype(
    [
        ('parent', _i),
        ('host', _i),
        ('weight', _f),
        ('idle', _b),
        ('load_avg', _f),
    ]
)
THREAD = np.dtype(
    [
        ('kind', _i),
        ('state', _i),
        ('group', _i),
        ('vm', _i),
        ('cpu', _i),
        ('next_on_host', _i),
        ('barrier', _i),
        ('executing', _b),
        ('blocked', _b),
        ('exec_since', _i),
        ('exec_start', _i),
        ('work_left', _i),
        ('spun', _i),
        ('spin', _i),
        ('work', _i),
        ('sleep', _i),
        ('spread', _f),
        ('phase_end', _i),
        ('phase', _i),
        ('phase_work', _i),
        ('phase_io', _i),
        ('io_each', _i),
        ('wait_since', _i),
        ('woken_at', _i),
        ('request_at', _i),
        ('run', _i),
        ('wait', _i),
        ('runs', _i),
        ('done', _i),
        ('last_ran', _i),
        ('tried', _i),
        ('quota', _i),
        ('period', _i),
        ('pool', _i),
        ('budget', _i),
    ]
)
#: A thread in Xen's credit scheduler (``struct csched_vcpu``).
CREDIT_TYPE = np.dtype(
    [
        ('credit', _f),
        ('pri', _i),
        ('next', _i),
        ('prev', _i),
        ('queued', _b),
        ('active', _b),
        ('parked', _b),
        ('migrating', _b),
        ('together', _b),
        ('since', _i),
    ]
)
BARRIER_TYPE = np.dtype(
    [
        ('at', _i),
        ('members', _i),
        ('head', _i),
        ('executing', _i),
        ('blocked', _i),
        ('work', _i),
        ('spread', _f),
        ('spin', _i),
        ('passed', _i),
        ('round_ns', _f),
        ('flight', _i),
        ('flight_left', _i),
        ('loss', _f),
        ('resend', _i),
        ('released', _b),
        ('waited', _f),
    ]
)
VM = np.dtype(
    [
        ('barrier', _i),
        ('begin', _i),
        ('end', _i),
        ('arrival', _i),
        ('arrival_spread', _f),
        ('queued', _i),
        ('first', _i),
        ('io_events', _i),
        ('requests', _i),
        ('lost', _i),
        ('slice', _i),
        ('together', _i),
        ('active', _i),
        ('earned', _f),
        ('settled', _b),
    ]
)


class State(NamedTuple):
    """Simulated hosts of one clock.

    A tuple, because Numba caches functions of tuples.

    :ivar k: one record of :data:`KERNEL`.
    :ivar domains: by CPU and level (0: socket, 1: host).
    :ivar allowed: by thread and CPU, of which the first of the host is 0.
    :ivar member: next member of a thread's barrier, by thread.
    :ivar heap: timers as a binary heap of their numbers.
    :ivar due: time of each timer.
    :ivar place: where each timer stands in the heap, or -1.
    :ivar wakeups: histogram of wake-up latencies, by VM.
    :ivar responses: histogram of response times, by VM.
    :ivar arrivals: times of waiting requests, by VM, as a ring.
    :ivar credits: of Xen's scheduler, by thread.
    """

    k: Any
    hosts: Any
    cpus: Any
    domains: Any
    queues: Any
    entities: Any
    groups: Any
    threads: Any
    barriers: Any
    vms: Any
    allowed: Any
    member: Any
    heap: Any
    size: Any
    due: Any
    place: Any
    pending: Any
    random: Any
    wakeups: Any
    responses: Any
    arrivals: Any
    credits: Any


def allocate(
    hosts: int, per_host: int, max_threads: int, max_groups: int
) -> State:
    """Return the arrays of empty hosts.

    :param per_host: number of CPUs of each host.
    :param max_threads: of all hosts together.
    :param max_groups: of all hosts together, root groups included.
    """
    cpus = hosts * per_host
    queues = max_groups * per_host
    timers = 3 * cpus + 2 * max_threads + 2 * max_groups + hosts
    return State(
        k=np.zeros(1, KERNEL),
        hosts=np.full(hosts, -1, HOST),
        cpus=np.zeros(cpus, CPU),
        domains=np.zeros((cpus, 2), DOMAIN),
        queues=np.zeros(queues, QUEUE),
        entities=np.zeros(max_threads + queues, ENTITY),
        groups=np.zeros(max_groups, GROUP),
        threads=np.zeros(max_threads, THREAD),
        barriers=np.zeros(max_groups, BARRIER_TYPE),
        vms=np.zeros(max_groups, VM),
        allowed=np.ones((max_threads, per_host), np.bool_),
        member=np.full(max_threads, -1, np.int64),
        heap=np.zeros(timers, np.int64),
        size=np.zeros(1, np.int64),
        due=np.full(timers, NEVER, np.int64),
        place=np.full(timers, -1, np.int64),
        pending=np.zeros(cpus, np.int64),
        random=np.zeros(1, np.uint64),
        wakeups=np.zeros((max_groups, BUCKETS), np.int64),
        responses=np.zeros((max_groups, BUCKETS), np.int64),
        arrivals=np.zeros((max_groups, MAX_REQUESTS), np.int64),
        credits=np.zeros(max_threads, CREDIT_TYPE),
    )
