# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Sleep and wake-up of threads, and which CPU a woken thread gets."""

from nova_vhpc_lab.sim.kernel import (
    balance,
    credit,
    eevdf,
    execution,
    layout,
    migrate,
    switch,
)
from nova_vhpc_lab.sim.kernel.compiled import inner
from nova_vhpc_lab.sim.kernel.state import CREDIT, RUNNABLE, SLEEPING


@inner
def sleep(s, t):
    """Put a running thread to sleep."""
    thread = s.threads[t]
    execution.stop(s, t)
    thread.state = SLEEPING
    if s.k[0].scheduler == CREDIT:
        credit.sleep(s, t)
        return
    eevdf.dequeue(s, t, True)
    eevdf.mark(s, thread.cpu)


@inner
def _free(s, t, cpu):
    """Return whether a thread may run on a CPU that is as good as idle."""
    return layout.may_run(s, t, cpu) and (
        eevdf.cpu_idle(s, cpu) or eevdf.only_idle_groups(s, cpu)
    )


@inner
def first_allowed(s, t):
    """Return the allowed CPU of the least threads."""
    k = s.k[0]
    best = -1
    first = layout.first_cpu(s, s.threads[t].cpu)
    for cpu in range(first, first + k.per_host):
        if layout.may_run(s, t, cpu) and (
            best < 0 or s.queues[cpu].runnable < s.queues[best].runnable
        ):
            best = cpu
    return best


@inner
def choose_cpu(s, t, waker):
    """Return the CPU for a woken thread (``select_task_rq_fair``)."""
    k = s.k[0]
    previous = s.threads[t].cpu
    if not layout.may_run(s, t, previous):
        return first_allowed(s, t)
    target = previous
    if waker >= 0 and waker != previous and layout.may_run(s, t, waker):
        # wake_affine(): to the waker if that is idle, or the less loaded.
        same = waker // k.per_socket == previous // k.per_socket
        if eevdf.cpu_idle(s, waker) and same:
            if not eevdf.cpu_idle(s, previous):
                target = waker
        elif (
            s.queues[waker].load_avg * 100.0
            < s.queues[previous].load_avg * balance.IMBALANCE_PCT
        ):
            target = waker
    if _free(s, t, target):
        return target
    if (
        previous != target
        and previous // k.per_socket == target // k.per_socket
        and _free(s, t, previous)
    ):
        return previous
    first = target // k.per_socket * k.per_socket
    best = -1
    for step in range(1, k.per_socket):
        cpu = first + (target - first + step) % k.per_socket
        if _free(s, t, cpu):
            if eevdf.cpu_idle(s, cpu):
                return cpu
            if best < 0:
                best = cpu
    return best if best >= 0 else target


@inner
def wake(s, t, waker):
    """Wake a sleeping thread (``try_to_wake_up``).

    :param waker: CPU that wakes it, or -1 for a timer or a device.
    """
    thread = s.threads[t]
    if thread.state != SLEEPING:
        return
    thread.state = RUNNABLE
    thread.wait_since = thread.woken_at = s.k[0].now
    if s.k[0].scheduler == CREDIT:
        credit.wake(s, t)
        return
    if not s.entities[t].on:
        cpu = choose_cpu(s, t, waker)
        if cpu != thread.cpu:
            migrate.move(s, t, cpu)
    eevdf.enqueue(s, t, False)
    switch.preempt(s, t)
    if s.cpus[thread.cpu].curr == t:
        # It had not even left its CPU yet.
        execution.start(s, t, 0)


@inner
def unthrottle(s, t):
    """Let a throttled thread run again (``unthrottle_cfs_rq``)."""
    s.threads[t].state = RUNNABLE
    eevdf.enqueue(s, t, False)
    switch.preempt(s, t)
