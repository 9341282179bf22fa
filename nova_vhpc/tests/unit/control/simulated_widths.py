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


"""Fairness among parallel VMs of different widths on one host.

``python -m nova_vhpc.tests.unit.control.simulated_widths`` compares stock and
gang windows on random hosts without other busy VMs.
"""

import dataclasses
import random
import statistics
from collections.abc import Iterable

from nova_vhpc.tests.unit.control import simulated_host

LEAST = 0.002
"""Least progress that counts, as a part of the time: logarithms are taken."""


@dataclasses.dataclass
class Widths:
    """Progress of the VMs of a host, in parts of the time.

    :ivar sizes: vCPUs by VM.
    :ivar stock: progress by VM under stock Linux.
    :ivar windows: progress by VM with gang windows.
    """

    cpus: int
    sizes: dict[str, int]
    stock: dict[str, float]
    windows: dict[str, float]

    def efficiency(self, got):
        """Return the part of all CPU time in which the VMs progress."""
        return sum(got[vm] * self.sizes[vm] for vm in got) / self.cpus

    def fairness(self, got):
        """Return least by greatest progress for VMs of each width."""
        by_size = {}
        for vm, part in got.items():
            by_size.setdefault(self.sizes[vm], []).append(max(LEAST, part))
        return [
            min(parts) / max(parts)
            for parts in by_size.values()
            if len(parts) > 1
        ]


def compare(seed):
    """Run a random host under stock Linux and with windows."""
    chance = random.Random(seed)
    cpus = chance.choice((8, 16, 24, 32))
    overcommit = chance.choice((1, 1.5, 2, 3))
    sizes = chance.choice(((2, 4, 8), (2, 8), (4,), (4, 8), (2, 4)))
    members = chance.choice(((1,), (1, 2), (2, 4)))
    progress = []
    for managed in (False, True):
        vms = simulated_host.clusters(
            random.Random(seed), cpus, overcommit, sizes, members
        )
        host = simulated_host.Host(cpus, vms, managed, seed)
        progress.append(host.run(10_000, 4_000))
    return Widths(cpus, {vm.name: vm.size for vm in vms}, *progress)


def report(seeds: Iterable[int]) -> None:
    """Print the means of all hosts."""
    hosts = [compare(seed) for seed in seeds]
    for name in ('stock', 'windows'):
        got = [getattr(host, name) for host in hosts]
        efficiency = statistics.fmean(
            host.efficiency(one) for host, one in zip(hosts, got, strict=True)
        )
        fair = [
            part
            for host, one in zip(hosts, got, strict=True)
            for part in host.fairness(one)
        ]
        mean = statistics.geometric_mean(
            max(LEAST, part) for one in got for part in one.values()
        )
        print(
            f'{name}: efficiency {efficiency:.2f}, mean {mean:.3f}, '
            f'fairness {statistics.fmean(fair):.2f}'
        )
    worse = [
        host.windows[vm] < 0.9 * host.stock[vm]
        for host in hosts
        for vm in host.stock
    ]
    print(f'{sum(worse)} of {len(worse)} VMs had less than under stock')


if __name__ == '__main__':
    report(range(40))
