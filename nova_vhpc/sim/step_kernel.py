# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

# Numba infers the types of what it compiles.
# mypy: allow-untyped-defs, allow-untyped-calls

"""A kernel scheduler in steps of 0.1 ms.

Each CPU runs EEVDF: the eligible thread with the earliest deadline runs until
its slice is over, which the CPU's next tick finds out. A VM's weight is
divided over its runnable vCPUs by their averaged load. Idle CPUs pull waiting
threads; busy ones balance loads at intervals. Not modelled are caches, SMT,
frequencies, and levels of groups below the VM.
"""

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

STEP_US = 100.0

RUN, SPIN, SPIN_THEN_BLOCK, BLOCK, SLEEP, SERVE, IO = range(7)
"""Kinds of programs."""

ASLEEP, QUEUED, THROTTLED = range(3)
"""States of a thread; a queued one may be running."""

NICE_0 = 1_024.0
IDLE_WEIGHT = 3.0
MIN_WEIGHT = 2.0
LOAD_KEPT = 0.978572
"""Part of a thread's averaged load that is left after 1 ms."""

IMBALANCE = 1.17
BUSY_FACTOR = 16
LATENCY_BINS = 700
LATENCY_RATIO = 1.02
MIN_LATENCY_US = 10.0
SWITCH_US = 5.0

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class State(NamedTuple):
    """All of a host; arrays, because Numba compiles what works on them.

    ``v_`` are of VMs, ``t_`` of threads, ``c_`` of CPUs, ``g_`` of groups of
    VMs that wait for each other.
    """

    now_us: Floats
    chance: npt.NDArray[np.uint64]
    timer_us: Floats
    v_shares: Floats
    v_idle: Integers
    v_first: Integers
    v_threads: Integers
    v_kind: Integers
    v_work: Floats
    v_pause: Floats
    v_progress: Floats
    v_events: Integers
    v_latencies: Integers
    v_group: Integers
    t_vm: Integers
    t_cpu: Integers
    t_state: Integers
    t_allowed: npt.NDArray[np.uint64]
    t_time: Floats
    t_deadline: Floats
    t_weight: Floats
    t_lag: Floats
    t_load: Floats
    t_quota: Floats
    t_period: Floats
    t_used: Floats
    t_period_end: Floats
    t_run: Floats
    t_wait: Floats
    t_since: Floats
    t_runs: Integers
    t_woken: Floats
    t_wake_at: Floats
    t_left: Floats
    t_done: Floats
    t_spun: Floats
    t_budget: Floats
    g_limit: Floats
    g_active: Integers
    g_length: Integers
    g_threads: Integers
    c_running: Integers
    c_queue: Integers
    c_length: Integers
    c_tick: Floats
    c_balance: Floats
    c_failed: Integers
    c_stolen: Floats
    c_noise: Floats
    c_socket: Integers
    tick_us: float
    slice_us: float
    noise_us: float


@numba.njit(cache=True)
def uniform(s):
    """Return a random number in 0..1 (xorshift64*)."""
    x = s.chance[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    s.chance[0] = x
    x = x * np.uint64(2685821657736338717)
    return float(x >> np.uint64(11)) / 9007199254740992.0


@numba.njit(cache=True)
def exponential(s, mean):
    return -mean * np.log(1.0 - uniform(s))


@numba.njit(cache=True)
def may_run(s, t, c):
    return (s.t_allowed[t] >> np.uint64(c)) & np.uint64(1) != 0


@numba.njit(cache=True)
def virtual_time(s, c, without):
    """Return the weighted mean of a queue's virtual times, and its weight."""
    weights = 0.0
    total = 0.0
    for i in range(s.c_length[c]):
        t = s.c_queue[c, i]
        if t != without:
            weights += s.t_weight[t]
            total += s.t_weight[t] * s.t_time[t]
    if weights == 0.0:
        return 0.0, 0.0
    return total / weights, weights


@numba.njit(cache=True)
def lag(s, t, mean):
    """Return the lag (V - v), clamped to two slices."""
    most = 2.0 * s.slice_us * NICE_0 / s.t_weight[t]
    return max(-most, min(most, mean - s.t_time[t]))


@numba.njit(cache=True)
def enqueue(s, t, c):
    mean, weights = virtual_time(s, c, -1)
    delta = s.t_lag[t]
    if weights > 0.0:
        # Its own coming moves the mean.
        delta *= (weights + s.t_weight[t]) / weights
    s.t_time[t] = mean - delta
    s.t_deadline[t] = s.t_time[t] + s.slice_us * NICE_0 / s.t_weight[t]
    s.c_queue[c, s.c_length[c]] = t
    s.c_length[c] += 1
    s.t_cpu[t] = c
    s.t_state[t] = QUEUED
    s.t_since[t] = s.now_us[0]


@numba.njit(cache=True)
def dequeue(s, t):
    c = s.t_cpu[t]
    mean, _ = virtual_time(s, c, -1)
    s.t_lag[t] = lag(s, t, mean)
    n = s.c_length[c]
    for i in range(n):
        if s.c_queue[c, i] == t:
            s.c_queue[c, i] = s.c_queue[c, n - 1]
            break
    s.c_length[c] = n - 1
    if s.c_running[c] == t:
        s.c_running[c] = -1
    else:
        s.t_wait[t] += s.now_us[0] - s.t_since[t]


@numba.njit(cache=True)
def move(s, t, c):
    dequeue(s, t)
    enqueue(s, t, c)


@numba.njit(cache=True)
def is_idle(s, t):
    return s.v_idle[s.t_vm[t]] != 0


@numba.njit(cache=True)
def has_only_idle(s, c):
    """Return whether nothing but threads of idle groups is queued."""
    for i in range(s.c_length[c]):  # noqa: SIM110
        if not is_idle(s, s.c_queue[c, i]):
            return False
    return True


@numba.njit(cache=True)
def pick(s, c):
    """Return the eligible thread with the earliest deadline; -1 for none."""
    mean, _ = virtual_time(s, c, -1)
    best = -1
    for i in range(s.c_length[c]):
        t = s.c_queue[c, i]
        if s.t_time[t] <= mean + 1e-6 and (
            best < 0 or s.t_deadline[t] < s.t_deadline[best]
        ):
            best = t
    return best


@numba.njit(cache=True)
def switch(s, c, t):
    """Have a CPU run a queued thread."""
    before = s.c_running[c]
    if before == t:
        return
    now = s.now_us[0]
    if before >= 0:
        s.t_since[before] = now
    s.c_running[c] = t
    if t >= 0:
        s.t_wait[t] += now - s.t_since[t]
        s.t_runs[t] += 1
        if s.t_woken[t] >= 0.0:
            latency = max(MIN_LATENCY_US, now - s.t_woken[t] + SWITCH_US)
            index = int(
                np.log(latency / MIN_LATENCY_US) / np.log(LATENCY_RATIO)
            )
            s.v_latencies[s.t_vm[t], min(index, LATENCY_BINS - 1)] += 1
            s.t_woken[t] = -1.0


@numba.njit(cache=True)
def target(s, t):
    """Return the CPU on which a thread wakes up."""
    last = s.t_cpu[t]
    cpus = len(s.c_running)
    if (
        last >= 0
        and may_run(s, t, last)
        and (
            s.c_length[last] == 0
            or (has_only_idle(s, last) and not is_idle(s, t))
        )
    ):
        return last
    begin = int(uniform(s) * cpus)
    any_allowed = -1
    for i in range(cpus):
        c = (begin + i) % cpus
        if not may_run(s, t, c):
            continue
        any_allowed = c
        if last >= 0 and s.c_socket[c] != s.c_socket[last]:
            continue
        if s.c_length[c] == 0 or (has_only_idle(s, c) and not is_idle(s, t)):
            return c
    if last >= 0 and may_run(s, t, last):
        return last
    return any_allowed


@numba.njit(cache=True)
def wake(s, t):
    """Wake up a sleeping thread."""
    c = target(s, t)
    s.t_woken[t] = s.now_us[0]
    set_weight(s, t)
    enqueue(s, t, c)
    running = s.c_running[c]
    if running < 0:
        return
    # Otherwise the running thread is protected until its slice is over.
    if is_idle(s, running) and not is_idle(s, t):
        switch(s, c, pick(s, c))


@numba.njit(cache=True)
def fair_weight(s, t):
    """Return a thread's part of its VM's weight, by averaged loads."""
    v = s.t_vm[t]
    shares = IDLE_WEIGHT if s.v_idle[v] else s.v_shares[v]
    load = 1.0
    first = s.v_first[v]
    for other in range(first, first + s.v_threads[v]):
        if other != t:
            load += s.t_load[other]
    return max(0.1 if s.v_idle[v] else MIN_WEIGHT, shares / load)


@numba.njit(cache=True)
def set_weight(s, t):
    """Bring a thread's weight up to date; its lag stays the same in time."""
    new = fair_weight(s, t)
    old = s.t_weight[t]
    if abs(new - old) < 0.005 * old:
        return
    if s.t_state[t] == QUEUED:
        mean, _ = virtual_time(s, s.t_cpu[t], -1)
        left = (s.t_deadline[t] - s.t_time[t]) * old / new
        s.t_time[t] = mean - lag(s, t, mean) * old / new
        s.t_deadline[t] = s.t_time[t] + left
    else:
        s.t_lag[t] *= old / new
    s.t_weight[t] = new


@numba.njit(cache=True)
def movable(s, source, c, most):
    """Return a waiting thread that may move to a CPU; -1 for none.

    :param most: greatest weight that may move.
    """
    n = s.c_length[source]
    begin = int(uniform(s) * n)
    for i in range(n):
        t = s.c_queue[source, (begin + i) % n]
        if (
            t != s.c_running[source]
            and may_run(s, t, c)
            and s.t_weight[t] <= most
        ):
            return t
    return -1


@numba.njit(cache=True)
def load(s, c):
    total = 0.0
    for i in range(s.c_length[c]):
        total += s.t_weight[s.c_queue[c, i]]
    return total


@numba.njit(cache=True)
def pull(s, c):
    """Have an idle CPU pull a waiting thread; return whether it did."""
    cpus = len(s.c_running)
    for near in range(2):
        best = -1
        most = 0
        begin = int(uniform(s) * cpus)
        for i in range(cpus):
            other = (begin + i) % cpus
            if other == c or (s.c_socket[other] == s.c_socket[c]) != (
                near == 0
            ):
                continue
            waiting = 0
            for j in range(s.c_length[other]):
                t = s.c_queue[other, j]
                if (
                    t != s.c_running[other]
                    and not is_idle(s, t)
                    and may_run(s, t, c)
                ):
                    waiting += 1
            # On a CPU with idle threads only, the other one is no crowd.
            if waiting > most:
                most = waiting
                best = other
        if best >= 0:
            n = s.c_length[best]
            begin = int(uniform(s) * n)
            for i in range(n):
                t = s.c_queue[best, (begin + i) % n]
                if (
                    t != s.c_running[best]
                    and not is_idle(s, t)
                    and may_run(s, t, c)
                ):
                    move(s, t, c)
                    return True
    return False


@numba.njit(cache=True)
def pull_idle_thread(s, c):
    """Have an idle CPU pull a waiting thread of an idle group."""
    cpus = len(s.c_running)
    begin = int(uniform(s) * cpus)
    for i in range(cpus):
        other = (begin + i) % cpus
        if other != c and s.c_length[other] > 1:
            t = movable(s, other, c, np.inf)
            if t >= 0:
                move(s, t, c)
                return True
    return False


@numba.njit(cache=True)
def balance(s, c):
    """Have a busy CPU pull load from the busiest one, if it may."""
    cpus = len(s.c_running)
    total = 0.0
    for other in range(cpus):
        total += load(s, other)
    mean = total / cpus
    here = load(s, c)
    busiest = -1
    most = 0.0
    for i in range(1, cpus):
        other = (c + i) % cpus
        if s.c_length[other] < 2:
            continue
        # Averaged loads never stand still.
        there = load(s, other) * (0.97 + 0.06 * uniform(s))
        if there > most and movable(s, other, c, np.inf) >= 0:
            most = there
            busiest = other
    if busiest < 0 or here >= mean or most <= IMBALANCE * here:
        s.c_failed[c] = 0
        return
    imbalance = min(most - mean, mean - here)
    t = movable(s, busiest, c, imbalance * 2.0 ** min(s.c_failed[c], 20))
    if t < 0:
        s.c_failed[c] += 1
        return
    s.c_failed[c] = 0
    move(s, t, c)


@numba.njit(cache=True)
def tick(s, c):
    """Do what the CPU's tick does: end slices, balance."""
    now = s.now_us[0]
    t = s.c_running[c]
    if t >= 0 and s.t_time[t] >= s.t_deadline[t] - 1e-6:
        s.t_deadline[t] = s.t_time[t] + s.slice_us * NICE_0 / s.t_weight[t]
        best = pick(s, c)
        if best >= 0:
            switch(s, c, best)
    if now >= s.c_balance[c]:
        interval = 1_000.0 * len(s.c_running)
        if has_only_idle(s, c):
            if not pull(s, c) and s.c_length[c] == 0:
                pull_idle_thread(s, c)
        else:
            balance(s, c)
            interval *= BUSY_FACTOR
        s.c_balance[c] = now + interval * (0.9 + 0.2 * uniform(s))
        t = s.c_running[c]
        if t >= 0 and is_idle(s, t) and not has_only_idle(s, c):
            switch(s, c, pick(s, c))


@numba.njit(cache=True)
def timers(s):
    """Wake up threads and begin periods of quotas that are due."""
    now = s.now_us[0]
    first = np.inf
    for t in range(len(s.t_vm)):
        if s.t_quota[t] > 0.0:
            if now >= s.t_period_end[t]:
                s.t_period_end[t] += s.t_period[t]
                s.t_used[t] = max(0.0, s.t_used[t] - s.t_quota[t])
                if s.t_state[t] == THROTTLED:
                    set_weight(s, t)
                    enqueue(s, t, target(s, t))
            first = min(first, s.t_period_end[t])
        if s.t_state[t] == ASLEEP and s.t_wake_at[t] < np.inf:
            if now >= s.t_wake_at[t]:
                s.t_wake_at[t] = np.inf
                wake(s, t)
            else:
                first = min(first, s.t_wake_at[t])
    s.timer_us[0] = first


@numba.njit(cache=True)
def sleep(s, t, wake_at):
    dequeue(s, t)
    s.t_state[t] = ASLEEP
    s.t_wake_at[t] = wake_at
    s.timer_us[0] = min(s.timer_us[0], wake_at)


@numba.njit(cache=True)
def run_alone(s, t):
    """Run a thread whose program knows no siblings for one step."""
    v = s.t_vm[t]
    kind = s.v_kind[v]
    s.v_progress[v] += STEP_US
    if kind == RUN:
        return
    s.t_left[t] -= STEP_US
    if s.t_left[t] > 0.0:
        return
    now = s.now_us[0]
    if kind == SLEEP:
        # A step is longer than what is left: the rest is paid next time.
        s.t_left[t] += s.v_work[v]
        sleep(s, t, now + s.v_pause[v] * (0.5 + uniform(s)))
    elif kind == IO:
        s.v_events[v] += 2
        s.t_left[t] += s.v_work[v]
        sleep(s, t, now + exponential(s, s.v_pause[v]))
    else:
        # t_done is the time of the next request.
        while s.t_left[t] <= 0.0 and s.t_done[t] <= now:
            s.t_left[t] += exponential(s, s.v_work[v])
            s.t_done[t] += exponential(s, s.v_pause[v])
            s.v_events[v] += 2
        if s.t_left[t] <= 0.0:
            sleep(s, t, s.t_done[t])


@numba.njit(cache=True)
def run_group(s, g):
    """Let siblings that ran in this step progress from barrier to barrier.

    ``t_budget`` is the time that each thread ran. A thread may be one piece
    of work ahead of the slowest sibling.
    """
    opened = True
    while opened:
        opened = True
        least_left = np.inf
        for m in range(s.g_length[g]):
            t = s.g_threads[g, m]
            did = min(s.t_budget[t], max(0.0, s.g_limit[g] - s.t_done[t]))
            if did > 0.0:
                s.t_done[t] += did
                s.t_budget[t] -= did
                # The last to come opens the barrier.
                least_left = min(least_left, s.t_budget[t])
            if s.t_done[t] < s.g_limit[g] - 1e-6:
                opened = False
        if opened:
            open_barrier(s, g, least_left)
    for m in range(s.g_length[g]):
        t = s.g_threads[g, m]
        v = s.t_vm[t]
        kind = s.v_kind[v]
        if s.t_done[t] >= s.g_limit[g] - 1e-6 and s.t_state[t] == QUEUED:
            s.t_spun[t] += s.t_budget[t]
            if (
                kind == BLOCK
                or (kind == SPIN_THEN_BLOCK and s.t_spun[t] >= s.v_pause[v])
            ) and s.c_running[s.t_cpu[t]] == t:
                sleep(s, t, np.inf)
        s.t_budget[t] = 0.0


@numba.njit(cache=True)
def open_barrier(s, g, left):
    """Let all siblings begin their next piece of work.

    :param left: time that is left of this step.
    """
    for m in range(s.g_length[g]):
        t = s.g_threads[g, m]
        s.v_progress[s.t_vm[t]] = s.g_limit[g]
        s.t_budget[t] = min(s.t_budget[t], left)
        s.t_spun[t] = 0.0
        if s.t_state[t] == ASLEEP:
            wake(s, t)
    s.g_limit[g] += s.v_work[s.t_vm[s.g_threads[g, 0]]]


@numba.njit(cache=True)
def average_loads(s):
    """Renew averaged loads and, by them, weights: once per millisecond."""
    for t in range(len(s.t_vm)):
        on = 1.0 if s.t_state[t] == QUEUED else 0.0
        s.t_load[t] = s.t_load[t] * LOAD_KEPT + (1.0 - LOAD_KEPT) * on
    for t in range(len(s.t_vm)):
        if s.t_state[t] == QUEUED:
            set_weight(s, t)


@numba.njit(cache=True)
def advance(s, until_us):
    """Run until a time, in whole steps."""
    cpus = len(s.c_running)
    while s.now_us[0] + STEP_US <= until_us + 1e-6:
        s.now_us[0] += STEP_US
        now = s.now_us[0]
        if now >= s.timer_us[0]:
            timers(s)
        if now % 1_000.0 < STEP_US:
            average_loads(s)
        for c in range(cpus):
            if s.noise_us > 0.0 and now >= s.c_noise[c]:
                s.c_noise[c] = now + exponential(s, s.noise_us)
                s.c_stolen[c] = now + exponential(s, 300.0)
            if now >= s.c_tick[c]:
                s.c_tick[c] += s.tick_us
                tick(s, c)
            if s.c_running[c] < 0:
                if s.c_length[c] == 0 and not pull(s, c):
                    continue
                switch(s, c, pick(s, c))
            t = s.c_running[c]
            if t < 0 or now < s.c_stolen[c]:
                continue
            s.t_run[t] += STEP_US
            s.t_time[t] += STEP_US * NICE_0 / s.t_weight[t]
            if s.t_quota[t] > 0.0:
                s.t_used[t] += STEP_US
            v = s.t_vm[t]
            if s.v_group[v] >= 0:
                s.t_budget[t] = STEP_US
                s.g_active[s.v_group[v]] = 1
            else:
                run_alone(s, t)
            if (
                s.t_quota[t] > 0.0
                and s.t_used[t] >= s.t_quota[t]
                and s.t_state[t] == QUEUED
            ):
                dequeue(s, t)
                s.t_state[t] = THROTTLED
        for g in range(len(s.g_limit)):
            if s.g_active[g]:
                s.g_active[g] = 0
                run_group(s, g)


@numba.njit(cache=True)
def reweight(s, v):
    """Bring the weights of a VM's threads up to date."""
    first = s.v_first[v]
    for t in range(first, first + s.v_threads[v]):
        set_weight(s, t)
        if s.t_state[t] == QUEUED:
            c = s.t_cpu[t]
            running = s.c_running[c]
            if (
                running >= 0
                and is_idle(s, running)
                and not has_only_idle(s, c)
            ):
                switch(s, c, pick(s, c))


@numba.njit(cache=True)
def repin(s, t):
    """Move a thread off a CPU that it may use no more."""
    if may_run(s, t, s.t_cpu[t]):
        return
    if s.t_state[t] == QUEUED:
        s.t_lag[t] = 0.0
        dequeue(s, t)
        s.t_state[t] = ASLEEP
        c = target(s, t)
        enqueue(s, t, c)
