# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""Which parallel VMs form gangs."""

import collections
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from nova_vhpc.control.gang import matrix

TOO_WIDE = 'no windows: it has more vCPUs than CPUs that it may use'
CLUSTER_TOO_WIDE = (
    'no windows: the members of its cluster do not fit side by side here'
)
ONE_VCPU = (
    'needs no windows: no other vCPU of its cluster is here, or on a host '
    'that agrees on slots with this one'
)
"""Reasons why a spinning VM is in no gang."""


class Member(NamedTuple):
    """A VM of a gang.

    :ivar cpus: host CPUs that it may use.
    """

    uuid: str
    vcpus: int
    cpus: frozenset[int]


@dataclasses.dataclass(frozen=True, slots=True)
class Gang:
    """VMs whose vCPUs are to run at the same time, each on a CPU of its own.

    :ivar key: the same on all hosts: the cluster's id, or the VM's uuid.
    """

    key: str
    members: tuple[Member, ...]

    @property
    def width(self) -> int:
        """Number of CPUs that the gang needs."""
        return sum(member.vcpus for member in self.members)

    def demand(self, fair_cpus: Mapping[str, float]) -> matrix.Demand:
        """Return what the gang is entitled to.

        :param fair_cpus: CPUs that each VM is entitled to, by uuid. The
            member that is entitled to least decides.
        """
        part = min(
            fair_cpus.get(member.uuid, 0.0) / member.vcpus
            for member in self.members
        )
        return matrix.Demand(self.key, self.width, min(1.0, part))


class Candidate(NamedTuple):
    """A spinning VM.

    :ivar cluster: id of its virtual cluster; None for none.
    :ivar spans_vms: whether its program's processes in other VMs of the
        cluster wait for those in this one, as with MPI.
    """

    cluster: str | None
    spans_vms: bool
    member: Member


def form(candidates: Sequence[Candidate]) -> list[Gang]:
    """Form gangs, in order of their keys.

    The members of a cluster are one gang if they fit side by side. Otherwise
    each of them is a gang if its program stays within the VM. A program that
    spans them gains nothing by windows of one VM after the other: it waits for
    the whole rotation at each barrier, where the kernel's own short slices
    bring all of its processes to the barrier sooner. Left out, too, is a VM
    with more vCPUs than CPUs, and one of one vCPU, unless its program spans
    other VMs: these may be on other hosts.
    """
    clusters: dict[str, list[Candidate]] = {}
    for one in candidates:
        key = one.cluster or one.member.uuid
        clusters.setdefault(key, []).append(one)
    spanning = {
        one.cluster for one in candidates if one.cluster and one.spans_vms
    }
    gangs: list[Gang] = []
    for key, cluster in clusters.items():
        members = tuple(one.member for one in cluster)
        cpus = frozenset().union(*(member.cpus for member in members))
        if sum(member.vcpus for member in members) <= len(cpus):
            gangs.append(Gang(key, members))
        elif not any(one.spans_vms for one in cluster):
            gangs += [
                Gang(f'{key}/{member.uuid}', (member,)) for member in members
            ]
    return sorted(
        (
            gang
            for gang in gangs
            if (gang.width > 1 or gang.key in spanning)
            and all(one.vcpus <= len(one.cpus) for one in gang.members)
        ),
        key=lambda gang: gang.key,
    )


def left_out(
    candidates: Sequence[Candidate], gangs: Iterable[Gang]
) -> dict[str, str]:
    """Return why spinning VMs are in no gang, by uuid."""
    in_gangs = {member.uuid for gang in gangs for member in gang.members}
    widths: collections.Counter[str | None] = collections.Counter()
    for one in candidates:
        widths[one.cluster or one.member.uuid] += one.member.vcpus
    reasons: dict[str, str] = {}
    for one in candidates:
        member = one.member
        if member.uuid in in_gangs:
            continue
        if member.vcpus > len(member.cpus):
            reason = TOO_WIDE
        elif widths[one.cluster or member.uuid] == 1 or not one.spans_vms:
            reason = ONE_VCPU
        else:
            reason = CLUSTER_TOO_WIDE
        reasons[member.uuid] = reason
    return reasons
