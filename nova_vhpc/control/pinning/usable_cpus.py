# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The CPUs of the host that a VM may be pinned to."""

from nova_vhpc.control import model

MAX_SETS = 4_096
"""Sets of CPUs kept; bounds memory, since VMs come and go."""


class UsableCpus:
    """CPUs of the host that VMs may be pinned to.

    Many VMs have few different sets of allowed CPUs, so intersections are
    kept. To intersect for each VM in each tick takes 8% more of a decision
    (gang and balance, 200 VMs on 64 CPUs), most of it for hashing the results.

    :ivar all_cpus: all CPUs of the host.
    """

    __slots__ = ('_cpus', '_within', 'all_cpus')

    def __init__(self) -> None:
        """Start without any CPU."""
        self.all_cpus: frozenset[int] = frozenset()
        self._cpus: tuple[model.Cpu, ...] = ()
        self._within: dict[frozenset[int] | None, frozenset[int]] = {}

    def update(self, cpus: tuple[model.Cpu, ...]) -> bool:
        """Take the host's CPUs, once per tick.

        :returns: whether former results of :meth:`of` are void.
        """
        if cpus == self._cpus and len(self._within) <= MAX_SETS:
            return False
        self._cpus = cpus
        self.all_cpus = frozenset(cpu.id for cpu in cpus)
        self._within = {}
        return True

    def of(self, vm: model.VmView) -> frozenset[int]:
        """Return the CPUs for one VM; empty if it may use none of the host.

        VMs with equal allowed CPUs get the same object.
        """
        allowed = vm.allowed_cpus
        within = self._within.get(allowed)
        if within is None:
            within = (
                self.all_cpus if allowed is None else self.all_cpus & allowed
            )
            self._within[allowed] = within
        return within


def last_first(cpus: tuple[model.Cpu, ...]) -> list[model.Cpu]:
    """Return the host's CPUs, last socket first.

    The threads of a core and the cores of a cache are together. CPUs that are
    set apart for a purpose are taken in this order, because the host's own
    work tends to be on the first CPUs.
    """
    return sorted(
        cpus,
        key=lambda cpu: (cpu.socket, cpu.llc, cpu.core, cpu.id),
        reverse=True,
    )
