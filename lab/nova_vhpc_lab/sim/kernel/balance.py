# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Load balancing between CPUs: ``sched_balance_rq`` and newly idle CPUs.

Two levels: the CPUs of a socket (a last-level cache), and the sockets.
"""

from nova_vhpc_lab.sim.kernel import eevdf, layout, load, migrate
from nova_vhpc_lab.sim.kernel.compiled import inner
from nova_vhpc_lab.sim.kernel.state import RUNNABLE

#: sysctl_sched_migration_cost: a thread that ran later than this is hot.
HOT_NS = 500_000
#: LLC and NUMA domains (``sd_init``).
IMBALANCE_PCT = 117.0
BUSY_FACTOR = 16
MAX_PINNED_INTERVAL_MS = 512
_SPARE, _BUSY, _IMBALANCED, _OVERLOADED = range(4)
_BY_LOAD, _BY_NUMBER = range(2)


@inner
def _bounds(s, cpu, level):
    """Return the first CPU of a domain, the end, and the groups' size."""
    k = s.k[0]
    if level == 0:
        first = cpu // k.per_socket * k.per_socket
        return first, first + k.per_socket, 1
    first = layout.first_cpu(s, cpu)
    return first, first + k.per_host, k.per_socket


@inner
def _stats(s, first, size, level):
    """Return load, threads, idle CPUs and type of a group of CPUs."""
    total = 0.0
    threads = 0
    idle = 0
    for cpu in range(first, first + size):
        load.update_queue(s, cpu)
        total += s.queues[cpu].load_avg
        threads += s.queues[cpu].runnable
        if s.queues[cpu].runnable == 0 and s.cpus[cpu].curr < 0:
            idle += 1
    kind = _SPARE
    if threads > size:
        kind = _OVERLOADED
    elif level == 1 and s.domains[first, 0].imbalanced:
        kind = _IMBALANCED
    elif threads == size:
        kind = _BUSY
    return total, threads, idle, kind


@inner
def _should_balance(s, cpu, first, size):
    """Return whether it is this CPU that balances for its group."""
    for other in range(first, first + size):
        if eevdf.cpu_idle(s, other):
            return other == cpu
    return cpu == first


@inner
def _busiest_cpu(s, first, size, how):
    best = -1
    most = 0.0
    for cpu in range(first, first + size):
        queue = s.queues[cpu]
        if queue.runnable < 2:
            continue
        this = queue.load_avg if how == _BY_LOAD else float(queue.runnable)
        if this > most:
            most = this
            best = cpu
    return best


@inner
def _pull(s, cpu, source, level, how, imbalance, only_one):
    """Move threads from a CPU (``detach_tasks``).

    :returns: number of moved threads, and whether pins were in the way of
        some or of all threads.
    """
    k = s.k[0]
    domain = s.domains[cpu, level]
    tries = 1 if level == 0 else 2
    k.stamp += 1
    moved = 0
    some_pinned = False
    all_pinned = True
    for _ in range(32):
        if s.queues[source].runnable < 2 or imbalance <= 0.0:
            break
        best = -1
        t = s.hosts[source // k.per_host].first_thread
        while t >= 0:
            thread = s.threads[t]
            if (
                thread.cpu == source
                and thread.state == RUNNABLE
                and thread.tried != k.stamp
                and s.entities[t].on
                and not s.entities[t].delayed
                and (best < 0 or thread.last_ran < s.threads[best].last_ran)
            ):
                best = t
            t = thread.next_on_host
        if best < 0:
            break
        thread = s.threads[best]
        thread.tried = k.stamp
        if not layout.may_run(s, best, cpu):
            some_pinned = True
            continue
        all_pinned = False
        if s.cpus[source].curr == best:
            continue
        if k.now - thread.last_ran < HOT_NS and domain.failed <= tries:
            continue
        if how == _BY_LOAD:
            amount = max(1.0, load.thread_load(s, best))
            if amount / (1 << min(domain.failed, 30)) > imbalance:
                continue
            imbalance -= amount
        else:
            imbalance -= 1.0
        migrate.move(s, best, cpu)
        eevdf.mark(s, cpu)
        moved += 1
        if only_one:
            break
    return moved, some_pinned, all_pinned and some_pinned


@inner
def _push(s, cpu, source, level, how):
    """Move the thread that runs there (``active_load_balance_cpu_stop``)."""
    t = s.cpus[source].curr
    tries = 1 if level == 0 else 2
    if (
        how == _BY_NUMBER
        and s.domains[cpu, level].failed > tries + 2
        and t >= 0
        and s.threads[t].state == RUNNABLE
        and layout.may_run(s, t, cpu)
    ):
        migrate.move_running(s, t, cpu)
        s.domains[cpu, level].failed = 0


@inner
def _domain(s, cpu, level, newly_idle):
    """Balance one domain for a CPU (``sched_balance_rq``).

    :returns: whether threads were moved.
    """
    k = s.k[0]
    domain = s.domains[cpu, level]
    begin, end, size = _bounds(s, cpu, level)
    local_first = cpu // size * size
    if not newly_idle and not _should_balance(s, cpu, local_first, size):
        return False
    idle_here = s.queues[cpu].runnable == 0
    here, here_threads, here_idle, here_kind = _stats(
        s, local_first, size, level
    )
    total = here
    busiest = -1
    busy, busy_threads, busy_idle, busy_kind = 0.0, 0, 0, 0
    for first in range(begin, end, size):
        if first == local_first:
            continue
        this, threads, idle, kind = _stats(s, first, size, level)
        total += this
        better = busiest < 0 or kind > busy_kind
        if not better and kind == busy_kind:
            if kind in (_OVERLOADED, _BUSY):
                better = this > busy
            else:
                better = idle < busy_idle or (
                    idle == busy_idle and threads > busy_threads
                )
        if better:
            busiest = first
            busy, busy_threads = this, threads
            busy_idle, busy_kind = idle, kind
    groups = (end - begin) // size
    average = total / groups
    balanced = busiest < 0 or busy_threads == 0
    if not balanced and busy_kind != _IMBALANCED:
        if here_kind > busy_kind:
            balanced = True
        elif here_kind == _OVERLOADED:
            balanced = (
                here >= busy
                or here >= average
                or 100.0 * busy <= IMBALANCE_PCT * here
            )
        elif busy_kind != _OVERLOADED and (
            not idle_here
            or busy_threads < 2
            or (size > 1 and here_idle <= busy_idle + 1)
        ):
            balanced = True
    how, imbalance = _BY_NUMBER, 0.0
    if not balanced:
        if busy_kind == _IMBALANCED:
            imbalance = 1.0
        elif here_kind == _SPARE:
            if size == 1:
                imbalance = float((busy_threads - here_threads) >> 1)
            else:
                imbalance = float(max(0, here_idle - busy_idle) >> 1)
                if busy_kind == _OVERLOADED:
                    imbalance = max(
                        imbalance, float((busy_threads - size + 1) >> 1)
                    )
        else:
            how = _BY_LOAD
            imbalance = min(busy - average, average - here)
        balanced = imbalance <= 0.0
    pinned = False
    if not balanced:
        source = _busiest_cpu(s, busiest, size, how)
        if source < 0:
            balanced = True
        else:
            moved, some_pinned, pinned = _pull(
                s, cpu, source, level, how, imbalance, newly_idle
            )
            if level == 0:
                s.domains[begin, 0].imbalanced = some_pinned and not moved
            if moved:
                domain.failed = 0
                domain.interval = k.per_socket if level == 0 else k.per_host
                return True
            if not pinned:
                if not newly_idle:
                    domain.failed += 1
                    _push(s, cpu, source, level, how)
                return False
    # out_balanced, out_all_pinned
    domain.failed = 0
    longest = 2 * (k.per_socket if level == 0 else k.per_host)
    if (pinned and domain.interval < MAX_PINNED_INTERVAL_MS) or (
        domain.interval < longest
    ):
        domain.interval *= 2
    return False


@inner
def periodic(s, cpu):
    """Balance at a tick what is due (``sched_balance_domains``)."""
    k = s.k[0]
    jiffy = s.cpus[cpu].jiffy
    hz = 1_000_000_000 // k.tick
    levels = 2 if k.sockets > 1 else 1
    for level in range(levels):
        domain = s.domains[cpu, level]
        busy = not eevdf.cpu_idle(s, cpu) and not eevdf.only_idle_groups(
            s, cpu
        )
        interval_ms = domain.interval
        if busy:
            interval_ms *= BUSY_FACTOR
        jiffies = (interval_ms * hz + 999) // 1_000
        if busy:
            jiffies -= 1
        jiffies = min(max(1, jiffies), max(1, hz * k.per_host // 10))
        if jiffy - domain.last >= jiffies:
            _domain(s, cpu, level, False)
            domain.last = jiffy


@inner
def newly_idle(s, cpu):
    """Pull a thread to a CPU without work (``sched_balance_newidle``)."""
    k = s.k[0]
    if s.cpus[cpu].avg_idle < HOT_NS:
        return
    levels = 2 if k.sockets > 1 else 1
    for level in range(levels):
        if _domain(s, cpu, level, True) or s.queues[cpu].runnable:
            return
