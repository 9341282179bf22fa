# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Random hosts by seed, and the named hosts of known faults."""

import dataclasses
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from nova_vhpc.control import model
from nova_vhpc_lab.sim import host_spec, programs
from nova_vhpc_lab.sim.host_spec import HostSpec, LoadSpec, VmSpec

CPUS = (2, 2, 4, 4, 8, 8, 12, 16, 24, 32, 48, 64)
OVERCOMMIT = (1.0, 1.5, 2.0, 3.0, 4.0)
GANG_SIZES = (1, 2, 2, 4, 4, 8, 16)
MEMBERS = (1, 1, 1, 2, 4)

OPTED_IN_PARTS = (0.25, 0.5, 0.75, 1.0)
"""Part of a host's vCPUs that belong to VMs that opted in."""

COPIES = (1, 1, 2, 3, 4)
"""Equal VMs that are drawn at a time."""

WEIGHTS = (512, 2_048, 4_096)
"""Weights of flavors that name one."""


def make(name: str) -> tuple[HostSpec, int]:
    """Return a host, and the seed to run it with.

    :param name: the seed of a random host, or a key of :data:`NAMED`.
    :raises ValueError: it is neither.
    """
    if name in NAMED:
        return dataclasses.replace(NAMED[name](), name=name), 0
    if not name.isdecimal():
        raise ValueError(
            f"there is no host '{name}'; give a seed, which is a whole "
            f'number, or one of {", ".join(NAMED)}'
        )
    return random_host(int(name)), int(name)


def seeds(seed: int, count: int) -> list[str]:
    """Return the names of random hosts."""
    chance = random.Random(seed)
    return [str(chance.randrange(10**9)) for _ in range(count)]


def random_host(seed: int) -> HostSpec:
    """Return a host whose VMs demand up to four times its CPUs."""
    chance = random.Random(seed)
    cpus = chance.choice(CPUS)
    draw = _Draw(chance, cpus)
    return HostSpec(
        str(seed),
        cpus,
        tuple(draw.vms()),
        tuple(draw.loads()),
        hz=chance.choice((250, 1_000)),
        sockets=draw.sockets,
    )


class _Draw:
    """Draws what runs on one host.

    :ivar sockets: number of the host's sockets.
    """

    def __init__(self, chance: random.Random, cpus: int) -> None:
        self._chance = chance
        self._cpus = cpus
        self.sockets = 2 if cpus >= 8 and chance.random() < 0.5 else 1
        # Nova gave a VM 1024 shares for each of its vCPUs up to 2023.1, and
        # has given each VM the default since.
        self._weight_by_vcpus = chance.random() < 0.3

    def vms(self) -> Iterator[VmSpec]:
        """Draw as many VMs as the host's over-commitment asks for."""
        chance = self._chance
        vcpus = max(2, round(chance.choice(OVERCOMMIT) * self._cpus))
        opted_in = max(1, round(chance.choice(OPTED_IN_PARTS) * vcpus))
        drawn = number = 0
        while drawn < opted_in:
            number += 1
            for vm in self._cluster(f'c{number}'):
                yield vm
                drawn += vm.vcpus
        number = 0
        while drawn < vcpus:
            for vm in self._equal_vms():
                number += 1
                yield dataclasses.replace(vm, name=f'v{number}')
                drawn += vm.vcpus

    def loads(self) -> Iterator[LoadSpec]:
        """Draw what runs on the host beside VMs."""
        chance = self._chance
        if chance.random() < 0.4:
            duty = chance.choice((0.1, 0.3, 1.0))
            yield LoadSpec(
                self._intermittent(duty),
                chance.randint(1, max(1, self._cpus // 8)),
            )

    def _cluster(self, name: str) -> Iterator[VmSpec]:
        """Draw the members of a virtual cluster."""
        chance = self._chance
        size = min(chance.choice(GANG_SIZES), self._cpus)
        work_us = round(10 ** chance.uniform(2, 3.7))
        kind, program = chance.choice(
            (
                ('spins', programs.Spin(work_us)),
                ('spins', programs.Spin(work_us)),
                ('spins', programs.Spin(work_us)),
                (
                    'spins, then blocks',
                    programs.SpinThenBlock(work_us, spin_us=200),
                ),
                ('blocks', programs.Block(work_us)),
            )
        )
        members = chance.choice(MEMBERS)
        coupled = members > 1 and chance.random() < 0.5
        paradigm = model.Paradigm.OPENMP
        if coupled:
            kind += ', with its peers'
            paradigm = model.Paradigm.MPI
        vm = self._set_up(
            VmSpec(
                name,
                kind,
                program,
                size,
                opted_in=True,
                cluster=name,
                coupled=coupled,
                paradigm=paradigm,
            )
        )
        for member in range(1, members + 1):
            yield dataclasses.replace(vm, name=f'{name}.{member}')

    def _equal_vms(self) -> Iterator[VmSpec]:
        """Draw some equal VMs that did not opt in."""
        chance = self._chance
        kind, program = self._other_program()
        size = chance.choice((1, 1, 2, 2, 4, 8, self._cpus))
        if kind != 'busy':
            size = min(size, 4)
        vm = self._set_up(VmSpec('', kind, program, min(size, self._cpus)))
        for _ in range(chance.choice(COPIES)):
            yield vm

    def _other_program(self) -> tuple[str, programs.Program]:
        chance = self._chance
        kind = chance.choice(
            ('busy', 'busy', 'partly idle', 'sleeper', 'server', 'disk')
        )
        if kind == 'partly idle':
            duty = chance.choice((0.3, 0.5, 0.8))
            return f'busy {duty:.0%}', self._intermittent(duty)
        if kind == 'sleeper':
            return kind, self._intermittent(chance.choice((0.02, 0.05, 0.1)))
        if kind == 'server':
            return kind, programs.Serve()
        if kind == 'disk':
            return kind, programs.Io()
        return kind, programs.Run()

    def _intermittent(self, duty: float) -> programs.Program:
        """Return a program that runs for a part of the time."""
        if duty >= 1:
            return programs.Run()
        period_us = round(10 ** self._chance.uniform(3.5, 5))
        run_us = max(50, round(duty * period_us))
        return programs.Sleep(run_us, period_us - run_us)

    def _set_up(self, vm: VmSpec) -> VmSpec:
        """Draw a VM's weight, quota and CPUs."""
        chance = self._chance
        weight = host_spec.DEFAULT_WEIGHT
        if self._weight_by_vcpus:
            weight *= vm.vcpus
        if chance.random() < 0.1:
            weight = chance.choice(WEIGHTS)
        quota_us = None
        if chance.random() < (0.1 if vm.opted_in else 0.15):
            quota_us = round(
                chance.choice((0.25, 0.5, 0.8)) * host_spec.PERIOD_US
            )
        return dataclasses.replace(
            vm, weight=weight, quota_us=quota_us, **self._binding(vm)
        )

    def _binding(self, vm: VmSpec) -> dict[str, Any]:
        """Draw whether a VM is bound to a NUMA node."""
        chance = self._chance
        node = self._cpus // 2
        if self.sockets == 1 or vm.vcpus > node or chance.random() > 0.2:
            return {}
        first = chance.choice((0, node))
        return {
            'allowed_cpus': frozenset(range(first, first + node)),
            'repin': False,
        }


def _gang(number: int, vcpus: int) -> VmSpec:
    """Return a VM that opted in and whose vCPUs spin for each other."""
    name = f'c{number}'
    return VmSpec(name, 'spins', programs.Spin(500), vcpus, True, name)


def _hog(number: int, vcpus: int) -> VmSpec:
    """Return a VM that did not opt in and never sleeps."""
    return VmSpec(f'v{number}', 'busy', programs.Run(), vcpus)


def _mix(cpus: int, gangs: tuple[int, ...], hogs: tuple[int, ...]) -> HostSpec:
    """Return a host with VMs of these numbers of vCPUs."""
    return HostSpec(
        '',
        cpus,
        (
            *(_gang(number, size) for number, size in enumerate(gangs, 1)),
            *(_hog(number, size) for number, size in enumerate(hogs, 1)),
        ),
    )


NAMED: Mapping[str, Callable[[], HostSpec]] = {
    'starved-narrow-gang': lambda: _mix(8, (2, 8), (8, 1)),
    'starved-equal-gangs': lambda: _mix(4, (4, 4), (4, 1)),
    'three-equal-gangs': lambda: _mix(8, (4, 4, 4), ()),
    'five-equal-gangs': lambda: _mix(8, (4, 4, 4, 4, 4), ()),
    'one-wide-neighbour': lambda: _mix(2, (2, 2), (2,)),
    'two-narrow-neighbours': lambda: _mix(2, (2, 2), (1, 1)),
    'two-wide-neighbours': lambda: _mix(2, (2, 2), (2, 2)),
    'loaded-neighbour': lambda: dataclasses.replace(
        _mix(2, (2, 2), (2,)), loads=(LoadSpec(programs.Run(), 1),)
    ),
}
"""Hosts on which VMs were starved or treated unequally, by name."""
