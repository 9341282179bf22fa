# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Timers of a simulated host: an indexed binary heap.

Each source of events has one timer: the tick, the noise and the slice of each
CPU, the program and the quota of each thread, each barrier, the requests of
each VM, and the accounting of credits of each host.
Timers of the same time fire in the order of their numbers.
"""

from nova_vhpc_lab.sim.kernel.compiled import inner
from nova_vhpc_lab.sim.kernel.state import NEVER


@inner
def tick_timer(s, cpu):
    return cpu


@inner
def noise_timer(s, cpu):
    return s.k[0].cpus + cpu


@inner
def program_timer(s, thread):
    return 2 * s.k[0].cpus + thread


@inner
def quota_timer(s, thread):
    return 2 * s.k[0].cpus + s.k[0].max_threads + thread


@inner
def barrier_timer(s, barrier):
    return 2 * s.k[0].cpus + 2 * s.k[0].max_threads + barrier


@inner
def request_timer(s, vm):
    return 2 * s.k[0].cpus + 2 * s.k[0].max_threads + s.k[0].max_barriers + vm


@inner
def slice_timer(s, cpu):
    k = s.k[0]
    return 2 * k.cpus + 2 * k.max_threads + 2 * k.max_barriers + cpu


@inner
def accounting_timer(s, host):
    return slice_timer(s, s.k[0].cpus) + host


@inner
def _before(s, a, b):
    return s.due[a] < s.due[b] or (s.due[a] == s.due[b] and a < b)


@inner
def _up(s, at):
    heap = s.heap
    timer = heap[at]
    while at > 0:
        above = (at - 1) >> 1
        if not _before(s, timer, heap[above]):
            break
        heap[at] = heap[above]
        s.place[heap[at]] = at
        at = above
    heap[at] = timer
    s.place[timer] = at


@inner
def _down(s, at):
    heap = s.heap
    size = s.size[0]
    timer = heap[at]
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and _before(s, heap[below + 1], heap[below]):
            below += 1
        if not _before(s, heap[below], timer):
            break
        heap[at] = heap[below]
        s.place[heap[at]] = at
        at = below
    heap[at] = timer
    s.place[timer] = at


@inner
def arm(s, timer, time):
    """Set a timer, or stop it by :data:`NEVER`."""
    at = s.place[timer]
    if time >= NEVER:
        if at < 0:
            return
        s.due[timer] = NEVER
        s.place[timer] = -1
        s.size[0] -= 1
        last = s.heap[s.size[0]]
        if last != timer:
            s.heap[at] = last
            s.place[last] = at
            _up(s, at)
            _down(s, s.place[last])
        return
    if at < 0:
        at = s.size[0]
        s.size[0] += 1
        s.heap[at] = timer
        s.place[timer] = at
        s.due[timer] = time
        _up(s, at)
        return
    if s.due[timer] == time:
        return
    s.due[timer] = time
    _up(s, at)
    _down(s, s.place[timer])
