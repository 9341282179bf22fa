# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The agent's threads on a simulated host: they compete for its CPUs."""

import collections
from collections.abc import Callable, Sequence

from nova_vhpc_lab.sim import host_spec, programs
from nova_vhpc_lab.sim.agenda import Agenda
from nova_vhpc_lab.sim.host import Host

WRITERS = 4
"""Threads that write at a time."""

TIMER_US = 60
"""Time after which the kernel wakes a thread whose timer is over."""

POLL_US = 25
"""How late the end of a thread's work is noticed at most."""

Action = Callable[[], None]


class _Worker:
    """Threads that carry out one piece of work after the other.

    :param work_us: mean CPU time of one.
    """

    def __init__(
        self,
        host: Host,
        agenda: Agenda,
        weight: int,
        work_us: float,
        threads: int,
    ) -> None:
        self._host = host
        self._agenda = agenda
        self._number = host.add_outside_load(
            programs.Serve(0, work_us, spread=0.5),
            threads,
            weight=weight,
            grouped=False,
        )
        self._waiting: collections.deque[Action] = collections.deque()
        self._done = 0

    def run(self, then: Action) -> None:
        """Do one piece of work, then call this."""
        self._waiting.append(then)
        self._host.request(self._number)
        if len(self._waiting) == 1:
            self._agenda.at(self._agenda.now_us + POLL_US, self._poll)

    def _poll(self) -> None:
        for _ in range(self._host.served(self._number) - self._done):
            self._done += 1
            self._waiting.popleft()()
        if self._waiting:
            self._agenda.at(self._agenda.now_us + POLL_US, self._poll)


class AgentThreads:
    """Has the agent's work done by threads of the host."""

    def __init__(
        self, host: Host, agenda: Agenda, spec: host_spec.AgentThreads
    ) -> None:
        self._agenda = agenda
        self._tick, self._player, self._writers = (
            _Worker(host, agenda, spec.weight, work_us, threads)
            for work_us, threads in (
                (spec.tick_us, 1),
                (spec.border_us, 1),
                (spec.write_us, WRITERS),
            )
        )

    def decide(self, then: Action) -> None:
        """Do the work of a control period, then carry the plan out."""
        self._tick.run(then)

    def at_border(self, border_us: int, then: Action) -> None:
        """Wake the player's thread at a window's border."""
        self._agenda.at(border_us + TIMER_US, lambda: self._player.run(then))

    def write(self, writes: Sequence[Action], then: Action) -> None:
        """Carry out all writes, then call this."""
        left = len(writes)

        def write_one(write: Action) -> None:
            nonlocal left
            write()
            left -= 1
            if not left:
                then()

        for one in writes:
            self._writers.run(lambda one=one: write_one(one))  # type: ignore[misc]
        if not writes:
            then()
