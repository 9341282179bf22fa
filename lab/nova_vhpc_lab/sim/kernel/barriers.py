# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Barriers that a VM's vCPUs, or a cluster's, meet at.

Each member computes, arrives, and waits for the last one: it spins for a
while, or for ever, then sleeps. Between two changes of who executes, nothing
happens that the scheduler could see unless a member goes to sleep, so that
rounds are counted in one step: programs that meet every few microseconds cost
no more than others.

Where members are on several hosts, the last arrival's message is under way for
a while, its *flight*: nobody computes meanwhile, whoever executes spins.
"""

from nova_vhpc_lab.sim.kernel import chance, timers
from nova_vhpc_lab.sim.kernel.compiled import inner
from nova_vhpc_lab.sim.kernel.state import NEVER

#: Times of flight are even from mean - spread * mean to mean + spread * mean.
FLIGHT_SPREAD = 0.25


@inner
def _new_round(s, b):
    barrier = s.barriers[b]
    barrier.passed += 1
    t = barrier.head
    while t >= 0:
        thread = s.threads[t]
        thread.work_left = chance.around(s, barrier.work, barrier.spread)
        thread.spun = 0
        t = s.member[t]
    if barrier.flight > 0:
        barrier.flight_left = chance.around(s, barrier.flight, FLIGHT_SPREAD)
        if barrier.loss > 0.0 and chance.uniform(s) < barrier.loss:
            barrier.flight_left += barrier.resend


@inner
def _longest(s, b):
    """Return in what time all have come, or NEVER if they do not."""
    longest = 0
    t = s.barriers[b].head
    while t >= 0:
        thread = s.threads[t]
        if thread.work_left > 0:
            if not thread.executing:
                return NEVER
            longest = max(longest, thread.work_left)
        t = s.member[t]
    return longest


@inner
def _quiet(s, b):
    """Return whether rounds pass of which the scheduler sees nothing."""
    barrier = s.barriers[b]
    if barrier.executing != barrier.members:
        return False
    if barrier.spin < 0:
        return True
    wait = 2.0 * min(barrier.spread, 4.0) * barrier.work
    if barrier.flight > 0:
        wait += (1.0 + FLIGHT_SPREAD) * barrier.flight
        if barrier.loss > 0.0:
            return False
    return barrier.spin > wait


@inner
def _wait_for_message(s, b, computed, passed):
    """Have members spin in a round that time did not end.

    :param computed: in what time the last one had come.
    """
    barrier = s.barriers[b]
    barrier.flight_left -= passed - computed
    t = barrier.head
    while t >= 0:
        thread = s.threads[t]
        if thread.executing:
            thread.spun += passed - thread.work_left
        thread.work_left = 0
        t = s.member[t]


@inner
def _count_waits(s, b, passed):
    """Count how long members waited that had come, executing or not.

    :param passed: a time in which no round ended but at its end.
    """
    waited = 0
    t = s.barriers[b].head
    while t >= 0:
        thread = s.threads[t]
        if thread.executing:
            waited += max(0, passed - thread.work_left)
        elif thread.work_left == 0:
            waited += passed
        t = s.member[t]
    s.barriers[b].waited += waited


@inner
def advance(s, b):
    """Bring a barrier up to now; who executes has not changed since."""
    barrier = s.barriers[b]
    passed = s.k[0].now - barrier.at
    barrier.at = s.k[0].now
    while passed > 0 and barrier.members:
        longest = _longest(s, b)
        _count_waits(s, b, min(passed, longest + barrier.flight_left))
        if longest > passed:
            t = barrier.head
            while t >= 0:
                thread = s.threads[t]
                if thread.executing:
                    rest = thread.work_left - passed
                    thread.work_left = max(0, rest)
                    if rest < 0:
                        thread.spun += min(-rest, passed)
                t = s.member[t]
            return
        if longest + barrier.flight_left > passed:
            _wait_for_message(s, b, longest, passed)
            return
        passed -= longest + barrier.flight_left
        _new_round(s, b)
        if barrier.blocked:
            barrier.released = True
        elif _quiet(s, b):
            rounds = int(passed / barrier.round_ns)
            barrier.passed += rounds
            barrier.waited += (
                rounds * barrier.members * (barrier.round_ns - barrier.work)
            )
            passed -= int(rounds * barrier.round_ns)


@inner
def watch(s, b):
    """Set the timer for what the scheduler sees next of a barrier."""
    barrier = s.barriers[b]
    if barrier.spin < 0 or (barrier.blocked == 0 and _quiet(s, b)):
        timers.arm(s, timers.barrier_timer(s, b), NEVER)
        return
    soonest = _longest(s, b)
    if soonest < NEVER:
        soonest += barrier.flight_left
    t = barrier.head
    while t >= 0:
        thread = s.threads[t]
        if thread.executing:
            soonest = min(
                soonest, thread.work_left + max(1, thread.spin - thread.spun)
            )
        t = s.member[t]
    timers.arm(
        s,
        timers.barrier_timer(s, b),
        NEVER if soonest >= NEVER else s.k[0].now + max(1, soonest),
    )


@inner
def execute(s, t, executing):
    """Have a member begin or stop to execute."""
    thread = s.threads[t]
    b = thread.barrier
    advance(s, b)
    if executing != thread.executing:
        thread.executing = executing
        s.barriers[b].executing += 1 if executing else -1
    watch(s, b)
