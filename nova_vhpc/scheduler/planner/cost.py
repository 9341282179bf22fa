# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Predict what members of a virtual cluster pay for communication.

The functions compute with the papers' figures, or with those that an operator
has measured (parameter ``table``). They answer two questions:

* how long one *message* takes, from the micro-benchmarks (HPCVirt'09 tables
  1, 3 and 5); the planner minimises the mean over all members;
* how much slower a *program* runs than on native Linux (HPCVirt'09 section
  6.4), for users who choose a network configuration.

``load`` is a column of the paper's tables, 1.0 to 4.0. Each guest there
keeps one CPU busy, so four guests on a 4-CPU host leave no CPU for packet
work. :func:`load_of` maps a host to that range.

The papers' figures and the short names of the papers are in
:mod:`.cost_table`; numbers here stand with their sources likewise.
"""

from collections.abc import Mapping
from typing import Final

from nova_vhpc.scheduler.planner.cost_table import (
    NATIVE,
    PAPER,
    PAPER_HOST_CPUS,
    Columns,
    CostTable,
)

LOCAL_AS: Final[Mapping[str, str]] = {
    'shared-separate': 'shared',
    'multiple-shared': 'shared',
}
"""HPCVirt'09 section 4: both send co-located peers over a shared bridge."""

REMOTE_AS: Final[Mapping[str, str]] = {
    'shared-separate': 'separate',
    'multiple-shared': 'shared',
}
"""HPCVirt'09 section 4: the bridge that takes the other hosts' traffic."""

COMMUNICATION_SHARE: Final = 0.079
"""Share of its run time that a program on native Linux spends in
communication. Derived: puts ``exported`` at 5% below native on the 2x4
cluster (HPCVirt'09 section 6.4, NPB class A)."""

OVERCOMMIT_SLOPE: Final[Mapping[str, float]] = {
    'mpi': 3.3,
    'openmp': 14.0,
    'hybrid': 14.0,
}
"""Growth of run time per unit of own vCPUs/pCPUs above 1, other guests not
counted: one program had all vCPUs of the host. NPC'09 section 4.2, LU at six
vCPUs on four CPUs: "more than 1.5 speedup with MPI", "less than 0.5 with
OpenMP", of an ideal 4; hybrid "degrades" as OpenMP does. None at or below
1."""

TIER_FACTOR: Final[Columns] = (0.0, 1.0, 2.0, 4.0)
"""Cost of a message between two hosts by the tier that holds both (host,
switch, rack, all). Ours: no paper measured a fabric; each step up is taken
to be over-subscribed 2:1, as is usual."""

MESSAGE_BYTES: Final = 16384
"""Nominal message. Ours: small enough that latency counts, and large enough
that tables 3 and 5 (4 KB and more) hold."""

LOCALITY: Final = 0.5
"""How fast traffic to other hosts falls with members per host: as the
surface of a square, 1/sqrt(members). Ours: members of one host take
neighbouring ranks, and half of NPB (BT, SP, LU, MG) talks to neighbours on
a grid. 0 is all-to-all, as IS and FT."""

SLOWEST_SHARE: Final = 0.5
"""Weight of the slowest member in the cost of a placement, the mean of all
having the rest. Ours: parallel programs wait for each other at every step,
but not at every message."""


FULL_LOAD = float(PAPER_HOST_CPUS)


def load_of(busy_vcpus: float, total_cpus: int) -> float:
    """Return 1.0 if a host has a spare CPU for packet work, 4.0 if none.

    One CPU is enough whatever the size of the host: the paper asks for "at
    least one CPU spare" (HPCVirt'09 section 6.2). Part of a CPU gives a
    value between the two.

    :param busy_vcpus: vCPUs that run on the host.
    :param total_cpus: CPUs of the host.
    """
    spare = min(1.0, max(0.0, total_cpus - busy_vcpus))
    return FULL_LOAD - (FULL_LOAD - 1.0) * spare


def _at(columns: Columns, position: float) -> float:
    """Interpolate linearly in a table row whose first column is 1."""
    position = min(max(position, 1.0), float(len(columns)))
    lower = min(int(position), len(columns) - 1)
    part = position - lower
    return columns[lower - 1] * (1.0 - part) + columns[lower] * part


def _scale(link_mbps: float, table: CostTable) -> float:
    """Return a link's speed relative to the table's; 1.0 if unknown."""
    return (link_mbps or table.link_mbps) / table.link_mbps


def remote_mb_s(
    network: str,
    talking: float,
    load: float,
    link_mbps: float = 0,
    table: CostTable = PAPER,
) -> float:
    """Return one member's bandwidth to other hosts, in MB/s.

    It is the smaller of two limits: what the host's CPUs can carry for the
    member, and the member's part of shared uplinks (HPCVirt'09 table 3).

    :param network: network configuration, or ``native``.
    :param talking: number of the host's members that talk to other hosts at
        the same time.
    :param load: load of the host, 1.0 to 4.0, by :func:`load_of`.
    :param link_mbps: speed of the uplink in Mbit/s; 0 if unknown.
    """
    row = REMOTE_AS.get(network, network)
    uplinks = table.shared_uplinks.get(network)
    # With one guest, shared and separate are the same (section 6.4): only
    # sharing the uplink makes them differ, and is counted below.
    cpu_row = table.remote_mb_s['separate' if uplinks else row]
    rate = _at(cpu_row, load) / load
    talking = max(1.0, talking)
    if network in table.two_interfaces:
        # A member that talks alone has all shared uplinks.
        links = max(1.0, (uplinks or 1.0) / talking)
        rate = min(
            rate * table.two_interfaces[network],
            links * table.remote_mb_s[NATIVE][0],
        )
    if uplinks:
        each = talking / uplinks
        rate = min(rate, _at(table.remote_mb_s['shared'], each) / each)
    return rate * _scale(link_mbps, table)


def local_mb_s(
    network: str,
    load: float,
    link_mbps: float = 0,
    table: CostTable = PAPER,
) -> float:
    """Return the bandwidth of one pair on the same host, in MB/s.

    HPCVirt'09 table 5: one pair keeps two of four CPUs busy, two pairs all.
    Through a software bridge or shared memory, a link slower than the
    paper's does not matter. A faster link scales the result, on the
    assumption that such a host is faster by as much; without that, the
    order of the configurations would no longer be the measured one.
    """
    row = LOCAL_AS.get(network, network)
    pairs = max(1.0, load / 2)
    rate = _at(table.local_mb_s[row], pairs) / pairs
    scale = _scale(link_mbps, table)
    return rate * (scale if _by_switch(row) else max(1.0, scale))


def _by_switch(row: str) -> bool:
    """Return whether co-located members talk through the physical switch."""
    return row in ('separate', 'exported')


def remote_latency_us(
    network: str, load: float, table: CostTable = PAPER
) -> float:
    """Return the latency of a small message to another host, in us.

    HPCVirt'09 table 1. ``exported`` bypasses the host's CPUs and its figures
    show no trend with their load, so their mean is used.
    """
    row = table.latency_us[REMOTE_AS.get(network, network)]
    if network == 'exported':
        return sum(row) / len(row)
    return _at(row, load)


def local_latency_us(
    network: str, load: float, table: CostTable = PAPER
) -> float:
    """Return the latency of a small message on the same host, in us.

    Through the physical switch it is that of HPCVirt'09 table 1. No paper
    measured the other configurations; their latency is assumed to fall as
    bandwidth rises (table 5 over table 3).
    """
    row = LOCAL_AS.get(network, network)
    latency_us = remote_latency_us(row, load, table)
    if _by_switch(row):
        return latency_us
    return latency_us * table.remote_mb_s[row][0] / table.local_mb_s[row][0]


def local_us(
    network: str,
    load: float,
    link_mbps: float = 0,
    table: CostTable = PAPER,
) -> float:
    """Return the time of a nominal message on the same host, in us."""
    return local_latency_us(network, load, table) + (
        MESSAGE_BYTES / local_mb_s(network, load, link_mbps, table)
    )


def remote_us(
    network: str,
    talking: float,
    load: float,
    link_mbps: float = 0,
    table: CostTable = PAPER,
) -> float:
    """Return the time of a nominal message within one switch, in us."""
    return remote_latency_us(network, load, table) + (
        MESSAGE_BYTES / remote_mb_s(network, talking, load, link_mbps, table)
    )


def remote_share(here: int, members: int, locality: float = LOCALITY) -> float:
    """Return the share of a member's traffic that leaves its host.

    :param here: number of members on its host, the member included.
    :param members: number of members of the whole virtual cluster.
    :param locality: 0.0 for all-to-all traffic; the greater, the more of
        the traffic stays between neighbours.
    :returns: 0.0 if all members are on its host, 1.0 if it is alone there.
    """
    if members <= 1 or here >= members:
        return 0.0
    share: float = (members - here) / (members - 1) * here**-locality
    return share


def split_us(
    network: str | None,
    here: int,
    members: int,
    load: float,
    *,
    link_mbps: float = 0,
    own: float = 1.0,
    strangers: float = 0.0,
    paradigm: str = 'mpi',
    table: CostTable = PAPER,
) -> tuple[float, float]:
    """Return what a member's mean message costs, in us: same host, others.

    The second part is that of peers within the same switch; a caller
    multiplies it by the mean ``TIER_FACTOR`` of the peers on other hosts. Both
    are 0.0 for a virtual cluster of one member, which has no peer.

    :param network: network configuration; None counts as ``shared``.
    :param here: number of members on its host, the member included.
    :param members: number of members of the whole virtual cluster.
    :param load: load of its host once all members are placed, 1.0 to 4.0,
        by :func:`load_of`.
    :param link_mbps: speed of its uplink in Mbit/s; 0 if unknown.
    :param own: the cluster's vCPUs per CPU of its host.
    :param strangers: vCPUs of other guests per CPU of its host.
    :param paradigm: ``mpi``, ``openmp`` or ``hybrid``.
    """
    if members <= 1:
        return 0.0, 0.0
    network = network or 'shared'
    share = remote_share(here, members)
    factor = overcommit_factor(paradigm, own) * sharing_factor(own, strangers)
    if network != 'exported':
        # The tables' columns mix the number of pairs with the lack of CPUs.
        # Section 6.4 has the effect of the latter alone, so load is 1.0
        # below. With exported, the host does no packet work.
        factor *= spare_cpu_factor(
            (FULL_LOAD - load) / (FULL_LOAD - 1.0), table
        )
    return (
        factor * (1.0 - share) * local_us(network, 1.0, link_mbps, table),
        factor
        * share
        * remote_us(network, max(1.0, here * share), 1.0, link_mbps, table),
    )


def overcommit_factor(paradigm: str, ratio: float) -> float:
    """Return by what factor a program's own over-commit prolongs its run.

    NPC'09 sections 4.2 and 6: no loss up to 1.0, then a steep one for
    OpenMP and hybrid programs and a smaller one for MPI. All vCPUs of that
    paper's hosts belong to one program, whose members take turns and so wait
    for each other; :func:`sharing_factor` is for other guests.

    :param paradigm: ``mpi``, ``openmp`` or ``hybrid``.
    :param ratio: the program's vCPUs per host CPU.
    """
    return 1.0 + OVERCOMMIT_SLOPE[paradigm] * max(0.0, ratio - 1.0)


def sharing_factor(own: float, strangers: float) -> float:
    """Return by what factor other guests on its CPUs prolong a run.

    The agent's windows let all members of a host run at the same time, so
    the program loses the time of the others, and does not wait for itself.

    :param own: the program's vCPUs per host CPU.
    :param strangers: vCPUs of other guests per host CPU.
    """
    return max(1.0, own + strangers) / max(1.0, own)


def spare_cpu_factor(spare_cpus: float, table: CostTable = PAPER) -> float:
    """Return by what factor a missing spare CPU prolongs the run time.

    HPCVirt'09 section 6.4: 1.30 to 1.35 without a CPU for packet work.

    :param spare_cpus: host CPUs that no vCPU uses; more than one do not
        help further.
    """
    missing = 1.0 - min(1.0, max(0.0, spare_cpus))
    return 1.0 + (table.no_spare_cpu - 1.0) * missing


def slowdown(
    network: str,
    here: int,
    members: int,
    load: float = FULL_LOAD,
    link_mbps: float = 0,
    tier_factor: float = 1.0,
    table: CostTable = PAPER,
) -> float:
    """Return a program's run time relative to native Linux, same layout.

    All-to-all traffic, ``here`` members on each host (HPCVirt'09 section
    6.4: 2x4 is ``here=4, members=8``, 8x2 is ``here=2, members=16``).

    :param tier_factor: mean ``TIER_FACTOR`` between members on different
        hosts; native Linux is taken to run under one switch.
    """
    exchange = exchange_time(
        network, here, members, load, link_mbps, tier_factor, table
    )
    return 1.0 + COMMUNICATION_SHARE * (exchange - 1.0)


def exchange_time(
    network: str,
    here: int,
    members: int,
    load: float,
    link_mbps: float = 0,
    tier_factor: float = 1.0,
    table: CostTable = PAPER,
) -> float:
    """Return the time of an all-to-all exchange relative to native Linux.

    Parameters are those of :func:`slowdown`. All members of a host use its
    uplinks at the same time, while :func:`split_us` counts those that talk
    to other hosts by the share of their messages.
    """
    virtual = _per_mb(
        network, here, members, load, link_mbps, table, tier_factor
    )
    native = _per_mb(NATIVE, here, members, load, link_mbps, table)
    return virtual / native


def _per_mb(
    network: str,
    here: int,
    members: int,
    load: float,
    link_mbps: float,
    table: CostTable,
    tier_factor: float = 1.0,
) -> float:
    """Return the seconds per MB of a member's all-to-all traffic."""
    share = remote_share(here, members, locality=0.0)
    return (1.0 - share) / local_mb_s(network, load, link_mbps, table) + (
        tier_factor
        * share
        / remote_mb_s(network, here, load, link_mbps, table)
    )
