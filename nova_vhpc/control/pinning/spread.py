# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Spread vCPUs over CPUs: siblings apart, loads even, moves rare.

Balance scheduling (O. Sukwong and H. S. Kim, EuroSys 2011; BS in the ATC
paper) puts the vCPUs of a VM on different CPUs, so that siblings can run at
the same time. Here each vCPU is pinned to one CPU, and keeps it while VMs come
and go, unless loads are uneven for long.
"""

import collections
from collections.abc import Mapping, Sequence

from nova_vhpc.control import model
from nova_vhpc.control.pinning import base, cpu_loads

CANDIDATES = 16
"""VMs considered per rebalancing; bounds the time of a tick."""

LEAST_GAIN = 0.75
"""Least gain of a move: decrease of the load met, in loads of one own vCPU."""


class Spreader:
    """Places VMs on CPUs and keeps their places.

    :param rebalance_periods: calls during which loads must be uneven before
        one VM is moved.
    """

    def __init__(self, rebalance_periods: int) -> None:
        self._rebalance_periods = max(1, rebalance_periods)
        self._calls = 0
        self._settled = True
        self._cpus: tuple[model.Cpu, ...] = ()
        self._loads = cpu_loads.CpuLoads(())
        self._placed: dict[str, cpu_loads.Request] = {}
        # By VM that is not idle: load of one vCPU.
        self._load: dict[str, int] = {}
        self._places: dict[str, cpu_loads.Place] = {}
        self._pins: dict[str, base.Pins] = {}

    def assign(
        self,
        requests: Sequence[cpu_loads.Request],
        cpus: tuple[model.Cpu, ...],
        in_force: Mapping[str, base.Pins],
    ) -> dict[str, base.Pins]:
        """Return pins of one CPU per vCPU for all requests.

        :param requests: all VMs to place; others are removed.
        :param cpus: CPUs of the host.
        :param in_force: by VM, its present pins. They are adopted if they fit
            the request, so that a restarted agent moves no VM.
        """
        if cpus != self._cpus:
            self._change_cpus(cpus)
        placed = self._placed
        changed = [one for one in requests if placed.get(one.uuid) != one]
        if changed or len(placed) != len(requests):
            self._settled = False
            # If the CPUs changed, requests were dropped, but places kept.
            for gone in self._places.keys() - {one.uuid for one in requests}:
                self._remove(gone)
                del self._places[gone]
            self._update_loads(requests)
            self._place(changed, in_force)
        return self.repeat()

    def repeat(self) -> dict[str, base.Pins]:
        """Return the pins for the requests and CPUs of the last call."""
        self._calls += 1
        if not self._settled and self._calls >= self._rebalance_periods:
            self._calls = 0
            self._settled = not self._rebalance()
        return dict(self._pins)

    def _change_cpus(self, cpus: tuple[model.Cpu, ...]) -> None:
        """Start again on other CPUs; VMs whose place still fits keep it."""
        self._cpus = cpus
        self._loads = cpu_loads.CpuLoads(cpus)
        self._placed = {}
        self._pins = {}

    def _update_loads(self, requests: Sequence[cpu_loads.Request]) -> None:
        """Update the loads if the fair share of any VM has changed."""
        load = cpu_loads.fair_loads(requests, len(self._cpus))
        if load == self._load:
            return
        before, self._load = self._load, load
        changes: list[tuple[cpu_loads.Place, int]] = []
        for uuid, request in self._placed.items():
            place = self._places[uuid]
            was, now = before.get(uuid, 0), load.get(uuid, 0)
            if was and now:
                changes.append((place, now - was))
            else:
                self._loads.remove(request, place, was)
                self._loads.add(request, place, now)
        self._loads.reweigh(changes)

    def _add(self, request: cpu_loads.Request, place: cpu_loads.Place) -> None:
        self._loads.add(request, place, self._load.get(request.uuid, 0))
        self._placed[request.uuid] = request
        if self._places.get(request.uuid) != place or (
            request.uuid not in self._pins
        ):
            self._places[request.uuid] = place
            self._pins[request.uuid] = _as_pins(place)

    def _keep(
        self,
        before: cpu_loads.Request,
        now: cpu_loads.Request,
        place: cpu_loads.Place,
    ) -> None:
        """Take a changed request of a VM whose place still fits."""
        if before.cluster != now.cluster:
            load = self._load.get(now.uuid, 0)
            self._loads.remove(before, place, load)
            self._loads.add(now, place, load)
        self._placed[now.uuid] = now

    def _remove(self, uuid: str) -> None:
        request = self._placed.pop(uuid, None)
        if request is not None:
            self._loads.remove(
                request, self._places[uuid], self._load.get(uuid, 0)
            )
            del self._pins[uuid]

    def _place(
        self,
        changed: Sequence[cpu_loads.Request],
        in_force: Mapping[str, base.Pins],
    ) -> None:
        """Keep places and adopt pins that fit; find CPUs for all others."""
        unplaced: list[cpu_loads.Request] = []
        for request in changed:
            before = self._placed.get(request.uuid)
            place = self._places.get(request.uuid)
            if place is None:
                place = _singles(in_force.get(request.uuid))
            if (
                place is None
                # An idle VM may be anywhere, also on CPUs of busy VMs.
                or (before is not None and before.idle and not request.idle)
                or not _suits(place, request)
            ):
                self._remove(request.uuid)
                unplaced.append(request)
            elif before is None:
                self._add(request, place)
            else:
                self._keep(before, request, place)
        # Great loads first: small ones then fill the gaps.
        load = self._load
        unplaced.sort(
            key=lambda request: (
                -load.get(request.uuid, 0),
                -request.vcpus,
                request.uuid,
            )
        )
        for request in unplaced:
            self._add(
                request,
                self._loads.find(request, load.get(request.uuid, 0)),
            )

    def _rebalance(self) -> bool:
        """Move one VM if that makes loads clearly more even.

        :returns: whether a VM was moved. If not, none will be until VMs or
            CPUs change.
        """
        fullest = sorted(
            (uuid for uuid, one in self._placed.items() if not one.idle),
            key=lambda uuid: (
                -self._loads.height(self._places[uuid]),
                uuid,
            ),
        )
        for uuid in fullest[:CANDIDATES]:
            request, old = self._placed[uuid], self._places[uuid]
            load = self._load[uuid]
            self._remove(uuid)
            new = self._loads.find(request, load)
            # With an equal load at the new place nothing would become more
            # even; VMs would only share CPUs with other VMs.
            gain = self._loads.roughness(old, load) - self._loads.roughness(
                new, load
            )
            better = gain > LEAST_GAIN * load
            self._add(request, _least_moves(old, new) if better else old)
            if better:
                return True
        return False


def _as_pins(place: cpu_loads.Place) -> base.Pins:
    return tuple(frozenset((cpu,)) for cpu in place)


def _singles(pins: base.Pins | None) -> cpu_loads.Place | None:
    """Return each vCPU's CPU, or None if any vCPU has several CPUs."""
    if pins is None or any(len(pin) != 1 for pin in pins):
        return None
    return tuple(cpu for pin in pins for cpu in pin)


def _suits(place: cpu_loads.Place, request: cpu_loads.Request) -> bool:
    """Return whether a place has one allowed CPU for each vCPU.

    Siblings may share CPUs only if there are fewer allowed CPUs than vCPUs,
    and then as evenly as possible.
    """
    if len(place) != request.vcpus or not request.allowed_cpus.issuperset(
        place
    ):
        return False
    if len(set(place)) == len(place):
        return True
    most = -(-request.vcpus // len(request.allowed_cpus))
    return max(collections.Counter(place).values()) <= most


def _least_moves(
    old: cpu_loads.Place, new: cpu_loads.Place
) -> cpu_loads.Place:
    """Return the new CPUs in an order in which most vCPUs stay."""
    free = collections.Counter(new)
    placed: list[int | None] = []
    for cpu in old:
        if free[cpu] > 0:
            free[cpu] -= 1
            placed.append(cpu)
        else:
            placed.append(None)
    rest = iter(sorted(free.elements()))
    return tuple(next(rest) if cpu is None else cpu for cpu in placed)
