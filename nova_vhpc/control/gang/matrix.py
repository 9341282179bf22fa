# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""Pack gangs into the slots of a rotation (Ousterhout's matrix).

In a slot some gangs run side by side, each on as many CPUs as it has vCPUs;
the CPUs that a slot leaves clear go to the VMs in no gang. A gang takes part
in so many slots that its part of the rotation, times its width, is the CPU
time that it is entitled to. What the slots leave clear is then just what the
other VMs are entitled to, and it is spread as evenly as the gangs' widths
allow: a VM of one vCPU can use no more than one CPU of a slot that is clear
altogether.
"""

import collections
import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from nova_vhpc.control import fair_share

SLOT_COUNTS = (1, 2, 3, 4, 5, 6, 8, 12, 16)
"""Numbers of slots that are tried; the fewest that are good enough win."""

CAPACITIES = 3
"""Numbers of CPUs for gangs in one slot that are tried."""

GOOD_ENOUGH = 0.08
"""Part of what a gang should have that it may lack in a rotation."""

MANY = 6
"""Of so many gangs two are left out at a time: each search takes long."""

REDUCTIONS = (1.0, 0.9, 0.8, 0.65, 0.5, 0.35)
"""Parts of their time for which gangs may run together."""

FITTED = 0.005
"""Part of what a gang should have that is near enough."""

SHORTEST = 0.01
"""Shortest slot, as a part of the rotation."""

FITTINGS = 20
"""Passes that fit the lengths of slots to the parts that gangs should have."""


class Demand(NamedTuple):
    """What one gang should have.

    :ivar key: the same on all hosts: the cluster's id, or the VM's uuid.
    :ivar width: number of its vCPUs.
    :ivar part: part of the time, 0 to 1, in which they should run together.
    """

    key: str
    width: int
    part: float


class Slot(NamedTuple):
    """A part of the rotation in which the same gangs run.

    :ivar part: its length, as a part of the rotation.
    :ivar gangs: keys of the gangs that run in it; empty in a pause.
    """

    part: float
    gangs: frozenset[str]


@dataclasses.dataclass(frozen=True, slots=True)
class Rotation:
    """The slots of a rotation, and how well they serve the gangs.

    :ivar served: part of the time in which each gang runs, by key.
    :ivar excluded: keys of gangs that find no place beside the others.
    """

    slots: tuple[Slot, ...] = ()
    served: Mapping[str, float] = dataclasses.field(default_factory=dict)
    excluded: frozenset[str] = frozenset()


def pieces_us(parts: Sequence[float], cycle_us: int) -> list[tuple[int, int]]:
    """Return begin and end of each slot, in microseconds.

    :param parts: lengths of the slots, as parts of the rotation.
    :param cycle_us: length of the rotation, in microseconds.
    """
    borders_us = [
        round(end * cycle_us)
        for end in itertools.accumulate(parts, initial=0.0)
    ]
    # The rotation's length must be the same on all hosts, exactly.
    borders_us[-1] = cycle_us
    return list(itertools.pairwise(borders_us))


class Outside(NamedTuple):
    """A CPU-bound VM in no gang.

    :ivar vcpus: number of its CPU-bound vCPUs.
    :ivar cpus: CPUs that it is entitled to.
    :ivar weight: its own ``cpu_shares``.
    """

    vcpus: int
    cpus: float
    weight: int


def rotation(
    demands: Sequence[Demand],
    cpus: int,
    is_shared: bool,
    outside: Sequence[Outside] = (),
) -> Rotation:
    """Return slots that give each gang its part, or nearly.

    While some gang would lack more than :data:`GOOD_ENOUGH`, gangs that are in
    no slot at all, or else the widest ones, are left out: what is wider than
    its neighbours leave seldom finds all its CPUs at once, and takes the most
    from them. While a VM in no gang would lack that much, gangs run together
    for a smaller part of their time; they get the rest of it in pauses.

    :param cpus: number of CPUs.
    :param is_shared: whether VMs in no gang need the rest; without them, gangs
        get it, too.
    :param outside: CPU-bound VMs in no gang.
    """
    excluded: set[str] = set()
    while True:
        left = [one for one in demands if one.key not in excluded]
        if not left:
            return Rotation(excluded=frozenset(excluded))
        for reduction in REDUCTIONS:
            reduced = [one._replace(part=one.part * reduction) for one in left]
            best = _best(reduced, cpus, is_shared)
            if best.worst > GOOD_ENOUGH:
                break
            if _missing(best.slots, left, cpus, outside) <= GOOD_ENOUGH:
                return Rotation(best.slots, best.served, frozenset(excluded))
        # What is owed too little for a slot must cost no other its slot.
        unserved = [one for one in left if not best.served[one.key]]
        if unserved:
            out = sorted(unserved, key=lambda one: (one.part, one.key))
        else:
            out = sorted(
                left,
                key=lambda one: (one.width, one.part, one.key),
                reverse=True,
            )
        excluded.update(one.key for one in out[: 1 + len(out) // MANY])


def _missing(
    slots: Iterable[Slot],
    demands: Iterable[Demand],
    cpus: int,
    outside: Sequence[Outside],
) -> float:
    """Return the largest part that a VM in no gang would lack."""
    widths = {one.key: one.width for one in demands}
    received: dict[fair_share.Demand, float] = {}
    entitled: dict[fair_share.Demand, float] = {}
    counts: collections.Counter[fair_share.Demand] = collections.Counter()
    for vm in outside:
        one = fair_share.Demand(vm.weight, vm.vcpus)
        counts[one] += 1
        entitled[one] = max(entitled.get(one, 0.0), vm.cpus)
    for slot in slots:
        clear = cpus - sum(widths[key] for key in slot.gangs)
        if clear > 0:
            for one, part in fair_share.fair_cpus(counts, clear).items():
                received[one] = received.get(one, 0.0) + slot.part * part
    return max(
        (
            1 - received.get(one, 0.0) / part
            for one, part in entitled.items()
            if part > 0
        ),
        default=0.0,
    )


def corrected(
    rotation: Rotation, corrections: Mapping[str, float], pause: float
) -> tuple[Slot, ...]:
    """Return the slots of a rotation with other lengths.

    :param corrections: by key, what to add to a gang's part, as a part of it.
    :param pause: what to add to the part in which no gang runs.
    """
    wanted = {
        key: min(1.0, part * (1 + corrections.get(key, 0.0)))
        for key, part in rotation.served.items()
    }
    parts = _fitted({slot.gangs: slot.part for slot in rotation.slots}, wanted)
    nobody: frozenset[str] = frozenset()
    if pause > 0:
        parts = {gangs: part * (1 - pause) for gangs, part in parts.items()}
    if pause > 0 or nobody in parts:
        parts[nobody] = min(1.0, max(0.0, parts.get(nobody, 0.0) + pause))
    total = sum(parts.values()) or 1.0
    return tuple(
        Slot(part / total, gangs)
        for gangs, part in parts.items()
        if part / total >= SHORTEST
    )


class _Packing(NamedTuple):
    slots: tuple[Slot, ...]
    served: Mapping[str, float]
    worst: float


def _best(demands: Sequence[Demand], cpus: int, is_shared: bool) -> _Packing:
    """Return the evenest and shortest packing that is good enough.

    :returns: the best one there is if none is good enough.
    """
    widest = max(one.width for one in demands)
    mean = sum(one.width * one.part for one in demands)
    least = min(cpus, max(widest, int(mean + 0.999)))
    if not is_shared:
        least = cpus
    step = max(1, -(-(cpus - least) // (CAPACITIES - 1)))
    best: _Packing | None = None
    for capacity in (*range(least, cpus, step), cpus):
        for count in SLOT_COUNTS:
            packing = _fit(
                demands,
                _pack(demands, capacity, count, not is_shared),
                cpus,
                is_shared,
            )
            if packing.worst <= GOOD_ENOUGH:
                return packing
            if best is None or packing.worst < best.worst:
                best = packing
    assert best is not None
    return best


def _pack(
    demands: Sequence[Demand], capacity: int, count: int, fill: bool
) -> list[frozenset[str]]:
    """Fill slot after slot with the gangs that are owed most.

    :param count: number of slots.
    :param fill: whether CPUs that are left go to gangs that are owed nothing.
    """
    owed = {one.key: 0.0 for one in demands}
    due = 0.0
    used = 0.0
    slots: list[frozenset[str]] = []
    for _ in range(count):
        for one in demands:
            owed[one.key] += one.part
            due += one.width * one.part
        left = capacity
        chosen: set[str] = set()
        order = sorted(
            demands, key=lambda one: (-owed[one.key], -one.width, one.key)
        )
        for is_due in (True, False) if fill else (True,):
            for one in order:
                if (
                    one.key in chosen
                    or one.width > left
                    # What is not due yet is left to the VMs in no gang.
                    or (is_due and owed[one.key] <= 0)
                    or (is_due and used + one.width / 2 > due + 1e-9)
                ):
                    continue
                chosen.add(one.key)
                left -= one.width
                used += one.width
                owed[one.key] -= 1
        slots.append(frozenset(chosen))
    return slots


def _fit(
    demands: Sequence[Demand],
    slots: Sequence[frozenset[str]],
    cpus: int,
    is_shared: bool,
) -> _Packing:
    """Choose the lengths of slots so that gangs get their parts.

    What gangs get beyond their parts is missing to the VMs in no gang.
    """
    parts: dict[frozenset[str], float] = {}
    for gangs in slots:
        parts[gangs] = parts.get(gangs, 0.0) + 1 / len(slots)
    wanted = {one.key: one.part for one in demands}
    # No lengths help a gang that is in no slot, and to fit them takes long.
    if frozenset().union(*parts) >= wanted.keys():
        parts = _fitted(parts, wanted)
    served = _served(parts, wanted)
    worst = max(1 - served[key] / part for key, part in wanted.items())
    if is_shared:
        due = sum(one.width * one.part for one in demands)
        used = sum(one.width * served[one.key] for one in demands)
        worst = max(worst, (used - due) / max(cpus - due, 0.1))
    return _Packing(
        tuple(Slot(part, gangs) for gangs, part in parts.items()),
        served,
        worst,
    )


def _fitted(
    parts: Mapping[frozenset[str], float], wanted: Mapping[str, float]
) -> dict[frozenset[str], float]:
    """Return lengths of slots with which gangs have what is wanted, nearly.

    By iterative proportional fitting.

    :param parts: lengths to begin with.
    """
    fitted = dict(parts)
    # Sorted: products must be the same to the last bit on all hosts.
    keys = {gangs: sorted(gangs) for gangs in parts}
    for _ in range(FITTINGS):
        served = _served(fitted, wanted)
        if all(
            abs(served[key] / part - 1) < FITTED
            for key, part in wanted.items()
        ):
            break
        factors = {
            key: (part / max(served[key], 1e-6)) ** 0.5
            for key, part in wanted.items()
        }
        for gangs in fitted:
            factor = math.prod(factors[key] for key in keys[gangs])
            fitted[gangs] *= max(0.5, min(2.0, factor))
        total = sum(fitted.values())
        fitted = {gangs: part / total for gangs, part in fitted.items()}
    return fitted


def _served(
    parts: Mapping[frozenset[str], float], keys: Mapping[str, float]
) -> dict[str, float]:
    served = dict.fromkeys(keys, 0.0)
    for gangs, part in parts.items():
        for key in gangs:
            served[key] += part
    return served
