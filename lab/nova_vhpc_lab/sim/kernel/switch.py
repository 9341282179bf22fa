# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Switches from one thread to the next, and preemption by wake-ups."""

from nova_vhpc_lab.sim.kernel import balance, credit, eevdf, execution, layout
from nova_vhpc_lab.sim.kernel.compiled import inner
from nova_vhpc_lab.sim.kernel.state import CREDIT, RUNNABLE


@inner
def schedule(s, cpu):
    """Choose what a CPU runs (``__schedule``)."""
    if s.k[0].scheduler == CREDIT:
        credit.schedule(s, cpu)
        return
    this = s.cpus[cpu]
    eevdf.update_curr(s, cpu)
    before = this.curr
    if before >= 0:
        thread = s.threads[before]
        if (
            thread.state == RUNNABLE
            and thread.quota > 0
            and thread.budget <= 0
        ):
            eevdf.throttle(s, before)
    if s.queues[cpu].runnable == 0:
        balance.newly_idle(s, cpu)
    t = eevdf.pick(s, cpu)
    this.resched = False
    if t == before:
        if t >= 0:
            eevdf.set_current(s, t, True)
        return
    if before >= 0:
        eevdf.set_current(s, before, False)
    if t >= 0:
        eevdf.set_current(s, t, True)
    execution.switch(s, cpu, t)


@inner
def is_idle(s, e):
    """Return whether an entity stands for an idle group (``se_is_idle``)."""
    if e < s.k[0].max_threads:
        return False
    return s.groups[layout.group_of(s, s.entities[e].mine)].idle


@inner
def depth(s, q):
    levels = 0
    while q >= s.k[0].cpus:
        q = s.entities[s.k[0].max_threads + q].queue
        levels += 1
    return levels


@inner
def preempt(s, t):
    """Decide whether a newcomer preempts (``wakeup_preempt``)."""
    k = s.k[0]
    cpu = s.threads[t].cpu
    curr = s.cpus[cpu].curr
    if curr < 0:
        eevdf.mark(s, cpu)
        return
    if curr == t:
        return
    new, old = t, curr
    new_depth = depth(s, s.entities[new].queue)
    old_depth = depth(s, s.entities[old].queue)
    while new_depth > old_depth:
        new = k.max_threads + s.entities[new].queue
        new_depth -= 1
    while old_depth > new_depth:
        old = k.max_threads + s.entities[old].queue
        old_depth -= 1
    while s.entities[new].queue != s.entities[old].queue:
        new = k.max_threads + s.entities[new].queue
        old = k.max_threads + s.entities[old].queue
    if is_idle(s, new) != is_idle(s, old):
        if is_idle(s, old):
            s.entities[old].protected = s.entities[old].vruntime
            eevdf.mark(s, cpu)
        return
    eevdf.update_curr(s, cpu)
    if eevdf.earliest(s, s.entities[new].queue) == new:
        eevdf.mark(s, cpu)
