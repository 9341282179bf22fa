# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Ticks of Xen's credit scheduler, and the accounting of credits.

A credit is a nanosecond of CPU time. Each period, as many as all CPUs of a
host have in that time are given to its *active* vCPUs by weight, which counts
per vCPU. A vCPU becomes active if a tick finds it running, and is so until it
has saved up more credits than the host's time slice. Priorities change at the
end of a period only.
"""

from nova_vhpc_lab.sim.kernel import credit, credit_queue, timers
from nova_vhpc_lab.sim.kernel.compiled import inner
from nova_vhpc_lab.sim.kernel.credit_queue import BOOST, OVER, UNDER

#: CSCHED_TICKS_PER_TSLICE, and the period below which there is one.
TICKS = 3
SHORT_PERIOD = 3_000_000


@inner
def boot(s):
    """Begin with the accounting, and with empty queues."""
    k = s.k[0]
    for cpu in range(k.cpus):
        s.cpus[cpu].first = -1
    for h in range(len(s.hosts)):
        s.hosts[h].balance = 0.0
        s.hosts[h].accounted = 0
        timers.arm(s, timers.accounting_timer(s, h), s.hosts[h].period)


@inner
def tick(s, cpu):
    """Charge what runs, and take its BOOST (``csched_tick``)."""
    k = s.k[0]
    host = s.hosts[cpu // k.per_host]
    ticks = 1 if host.period < SHORT_PERIOD else TICKS
    timers.arm(s, timers.tick_timer(s, cpu), k.now + host.period // ticks)
    this = s.cpus[cpu]
    t = this.curr
    if t >= 0:
        mine = s.credits[t]
        if mine.pri == BOOST and not mine.together:
            mine.pri = UNDER
        credit.charge(s, cpu)
        mine.active = True
    if this.sorted != host.accounted:
        this.sorted = host.accounted
        credit_queue.sort(s, cpu)


@inner
def _weight(s, t):
    g = s.threads[t].group
    if g < len(s.hosts):
        # A thread of the host in no group.
        return s.entities[t].weight
    return s.groups[g].weight


@inner
def _cap(s, v, period):
    """Return the credits that a VM may have at most in a period; 0: any."""
    cap = 0.0
    for t in range(s.vms[v].begin, s.vms[v].end):
        if s.threads[t].quota > 0:
            cap += period * s.threads[t].quota / s.threads[t].period
    return cap


@inner
def _count_active(s, h):
    """Count each VM's active vCPUs, and return the sum of their weights."""
    weights = 0.0
    t = s.hosts[h].first_thread
    while t >= 0:
        vm = s.vms[s.threads[t].vm]
        if t == vm.begin:
            vm.active = 0
            vm.settled = False
        if s.credits[t].active:
            vm.active += 1
            weights += _weight(s, t)
        t = s.threads[t].next_on_host
    return weights


@inner
def _share(s, h, weights):
    """Divide a host's credits; no VM earns more than it can use.

    What a VM cannot use goes to the others, also over several periods: a
    negative balance of all credits is made up for.
    """
    host = s.hosts[h]
    deficit = max(0.0, -host.balance)
    pool = float(host.period * s.k[0].per_host) + deficit
    all_weights = weights
    again = True
    while again:
        again = False
        t = host.first_thread
        while t >= 0:
            v = s.threads[t].vm
            vm = s.vms[v]
            if t == vm.begin and vm.active > 0 and not vm.settled:
                weight = _weight(s, t) * vm.active
                peak = vm.active * host.period
                peak += deficit * weight / all_weights
                cap = _cap(s, v, host.period)
                if cap > 0.0:
                    peak = min(peak, cap)
                vm.earned = pool * weight / weights
                if vm.earned >= peak:
                    vm.earned = peak
                    vm.settled = True
                    pool -= peak
                    weights -= weight
                    again = weights > 0.0
            t = s.threads[t].next_on_host


@inner
def _earn(s, t, period):
    """Give a vCPU its credits, and the priority that these are worth."""
    v = s.threads[t].vm
    vm = s.vms[v]
    mine = s.credits[t]
    # Debts of whole slices must not be forgiven if accounts are more frequent.
    most = s.k[0].slice
    mine.credit += vm.earned / vm.active
    if mine.credit < 0.0:
        if not mine.together:
            mine.pri = OVER
        cap = _cap(s, v, period)
        if cap > 0.0 and mine.credit < -cap / vm.active and not mine.parked:
            credit.park(s, t)
        mine.credit = max(mine.credit, -float(most))
        return
    if not mine.together:
        mine.pri = UNDER
    if mine.parked:
        credit.unpark(s, t)
    if mine.credit > most:
        mine.active = False
        mine.credit /= 2.0


@inner
def account(s, h):
    """Account the credits of all vCPUs of a host (``csched_acct``)."""
    host = s.hosts[h]
    weights = _count_active(s, h)
    balance = 0.0
    if weights > 0.0:
        _share(s, h, weights)
        t = host.first_thread
        while t >= 0:
            if s.credits[t].active:
                _earn(s, t, host.period)
                balance += s.credits[t].credit
            t = s.threads[t].next_on_host
    host.balance = balance
    host.accounted += 1
    timers.arm(s, timers.accounting_timer(s, h), s.k[0].now + host.period)
