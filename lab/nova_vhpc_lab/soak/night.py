# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The soak's part ``night``: an agent on a busy bus stays as large as it is.

One agent with real guests and a broker. In each round all clusters get other
names and operators look; now and then a guest is made and another one goes,
libvirtd is killed, and the options are read again.
Memory, threads and descriptors of the agent must be flat once it is warm.
"""

import contextlib
import dataclasses
import os
import pathlib
import random
import signal
import statistics
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import yaml

from nova_vhpc_lab.soak.part import Budget, Part, host_of

if TYPE_CHECKING:
    from nova_vhpc.tests.functional.agent.base import AgentTestCase

GUESTS = 4
CLUSTERS = 40
"""Clusters in the groups file; each has members here."""

ROUND_S = 6.0
"""Duration of a round, in seconds: the agent reads the groups file every five
seconds."""

WARM_PART = 0.4
"""Part of the rounds, 0 to 1, in which the agent may still grow."""

MOST_GROWTH_KIB = 4 * 1024
MOST_MORE_THREADS = 8
MOST_MORE_FILES = 8


@dataclasses.dataclass(frozen=True)
class Size:
    """What the agent holds.

    :ivar memory_kib: resident memory.
    :ivar threads: number of threads.
    :ivar files: number of open descriptors.
    """

    memory_kib: int
    threads: int
    files: int


def size(pid: int) -> Size:
    """Return what a process holds now."""
    path = pathlib.Path('/proc', str(pid))
    status = dict(
        line.split(':', 1)
        for line in (path / 'status').read_text().splitlines()
    )
    return Size(
        int(status['VmRSS'].split()[0]),
        int(status['Threads']),
        len(os.listdir(path / 'fd')),
    )


def growth(sizes: Sequence[Size]) -> Size:
    """Return by how much the agent has grown since it was warm.

    By medians of the first and the last third of the rounds after that:
    single rounds have a restart of libvirtd in them.
    """
    warm = sizes[int(len(sizes) * WARM_PART) :]
    third = max(1, len(warm) // 3)
    before, after = (
        [
            statistics.median(dataclasses.astuple(s)[i] for s in part)
            for i in range(3)
        ]
        for part in (warm[:third], warm[-third:])
    )
    return Size(*(int(b - a) for a, b in zip(before, after, strict=True)))


class Night(Part):
    """Runs rounds on one agent; needs root, QEMU and RabbitMQ."""

    name = 'night'
    counted = 'rounds'

    def run(self, seed: int, first: int, budget: Budget) -> bool:
        """Print the sizes; return whether they are flat."""
        # The parsers' parts need neither libvirt nor the agent.
        from nova_vhpc.tests.functional.agent import base
        from nova_vhpc_lab.testbed import rabbitmq

        class Host(base.AgentTestCase):
            def runTest(self) -> None:
                """Nothing: the rounds are below."""

        with host_of(Host) as host, rabbitmq.PrivateRabbitMQ() as broker:
            return self._run(host, broker.url, seed, budget)

    def _run(
        self, host: 'AgentTestCase', url: str, seed: int, budget: Budget
    ) -> bool:
        rng = random.Random(seed)
        specs = {'vhpc:workload': 'parallel'}
        guests = [host.domain(specs, busy=i < 2) for i in range(GUESTS)]
        groups = host.path / 'groups.yaml'
        self._rename(rng, groups, guests)
        agent = host.start_agent(
            DEFAULT__transport_url=url,
            vhpc_control__slice_policy='gang',
            vhpc_nova__groups_file=groups,
        )
        sizes: list[Size] = []
        while budget.lasts(len(sizes)):
            end_s = time.monotonic() + ROUND_S
            self._rename(rng, groups, guests)
            if len(sizes) % 4 == 1:
                gone = guests.pop(rng.randrange(len(guests)))
                host._end_domain(gone.UUIDString())
                guests.append(host.domain(specs, busy=rng.random() < 0.5))
            if len(sizes) % 7 == 3:
                host.daemon.kill()
                host.daemon.start()
                host.reconnect()
                guests = [
                    host.conn.lookupByUUIDString(one.UUIDString())
                    for one in guests
                ]
            if rng.random() < 0.2:
                os.kill(agent.pid, signal.SIGHUP)
            while time.monotonic() < end_s:
                with contextlib.suppress(OSError):
                    host.status()
                time.sleep(0.5)
            if not agent.is_alive():
                print(f'night: the agent has ended: {agent.exitcode}')
                return False
            sizes.append(size(agent.pid))
            if len(sizes) % 10 == 1:
                print(f'  round {len(sizes)}: {sizes[-1]}', flush=True)
        status = host.stop_agent(agent)
        more = growth(sizes)
        flat = (
            more.memory_kib <= MOST_GROWTH_KIB
            and more.threads <= MOST_MORE_THREADS
            and more.files <= MOST_MORE_FILES
        )
        print(
            f'night: {len(sizes)} rounds, exit status {status}; at the end '
            f'{sizes[-1]}; grown since it was warm: {more}: '
            f'{"flat" if flat else "NOT flat"}; repeat with tools/soak.sh '
            f'--seed {seed} --rounds {len(sizes)} night',
            flush=True,
        )
        return flat and status == 0

    @staticmethod
    def _rename(
        rng: random.Random, groups: pathlib.Path, guests: Sequence[Any]
    ) -> None:
        """Give every guest, and servers of others, another cluster."""
        clusters: dict[str, list[str]] = {}
        for one in guests:
            name = f'c{rng.randrange(10**9)}'
            clusters[name] = [one.UUIDString()]
        for number in range(CLUSTERS - len(clusters)):
            clusters[f'o{rng.randrange(10**9)}'] = [f'other-{number}']
        new = groups.with_suffix('.new')
        new.write_text(yaml.safe_dump(clusters))
        new.replace(groups)
