# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""Hosts agree on slots: a thousand at once, then few of which many fail."""

import random

from nova_vhpc_lab.sim import slot_network
from nova_vhpc_lab.soak import part

HOSTS = 1000
SETTLED_US = 3_000_000
MOST_QUIET = 2.1
"""Messages per host and second while nothing changes: each of four clusters
is renewed every two seconds."""


class Slots(part.Part):
    """Simulates the hosts of a cloud, another one in each round."""

    name = 'slots'
    counted = 'clouds'

    def run(self, seed: int, first: int, budget: part.Budget) -> bool:
        """Return whether all clouds settled in time."""
        done = 0
        passed = True
        for number in budget.numbers(first):
            found = self._round(seed + number)
            if found:
                passed = False
                print(f'{found}; {self.repeat(seed, number)}', flush=True)
            done += 1
        print(f'slots: {done} clouds of {HOSTS} hosts', flush=True)
        return passed

    def _round(self, seed: int) -> str:
        """Return what is wrong; empty if nothing is."""
        net = slot_network.SlotNetwork(
            slot_network.random_cloud(HOSTS, seed), seed
        )
        start_us = net.settle_us(20_000_000)
        net.run(5_000_000)
        quiet = net.run(10_000_000) / 10 / HOSTS
        slot_network.change_some(net, 0.1, seed)
        change_us = net.settle_us(20_000_000)
        print(
            f'slots: seed {seed}: settled {start_us / 1e6:.1f} s after the '
            f'start, {change_us / 1e6:.1f} s after a change; {quiet:.2f} '
            'messages per host and second',
            flush=True,
        )
        if max(start_us, change_us) > SETTLED_US:
            return 'not settled in time'
        if quiet > MOST_QUIET:
            return 'too many messages'
        chooser = random.Random(seed)
        for name in chooser.sample(sorted(net.hosts), HOSTS // 10):
            chooser.choice((net.kill, net.restart))(name)
        net.run(60_000_000)
        return '; '.join(net.faults_found()[:3])
