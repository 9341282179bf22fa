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


"""Predicted communication cost of a placement.

Pure functions over :mod:`nova_vhpc.scheduler.planner.cost_table`. Two views:

* what one *message* costs, from the micro-benchmarks (HPCVirt'09 tables 1,
  3 and 5); the planner minimises its mean over all members;
* what a *program* loses against native Linux (section 6.4), for people who
  choose a configuration.

``load`` is a column of the paper's tables: its guests keep one CPU each
busy, so that four on its 4-CPU hosts leave none for the packet work.
:func:`load_of` says which end of that a host is at.
"""

from nova_vhpc.scheduler.planner import cost_table as table

FULL_LOAD = float(table.PAPER_HOST_CPUS)


def load_of(busy_vcpus: float, total_cpus: int) -> float:
    """1.0 while a host has a CPU for its packet work, 4.0 when it has none.

    An absolute number and no share: the papers ask for "at least one CPU
    spare" (HPCVirt'09 section 6.2), and leave room between for part of
    one.
    """
    spare = min(1.0, max(0.0, total_cpus - busy_vcpus))
    return FULL_LOAD - (FULL_LOAD - 1.0) * spare


def _at(columns: table.Columns, position: float) -> float:
    """A table's row between its columns, the first being at 1."""
    position = min(max(position, 1.0), float(len(columns)))
    lower = min(int(position), len(columns) - 1)
    part = position - lower
    return columns[lower - 1] * (1.0 - part) + columns[lower] * part


def _scale(link_mbps: float) -> float:
    """Speed of a link over the paper's; an unknown one is the paper's."""
    return (link_mbps or table.PAPER_LINK_MBPS) / table.PAPER_LINK_MBPS


def remote_mb_s(
    network: str,
    talking: float,
    load: float,
    link_mbps: float = table.PAPER_LINK_MBPS,
) -> float:
    """Bandwidth of one member to members on other hosts, in MB/s.

    The lesser of what the host's CPUs carry for it, and its share of the
    uplinks that it shares (HPCVirt'09 table 3).

    :param network: a network configuration, or ``native``.
    :param talking: members of the host that talk to other hosts at a time.
    :param load: see the module.
    """
    row = table.REMOTE_AS.get(network, network)
    uplinks = table.SHARED_UPLINKS.get(network)
    # With one guest there is no distinction between shared and separate
    # (section 6.4); what sets them apart is the sharing.
    cpu_row = table.REMOTE_MB_S['separate' if uplinks else row]
    rate = _at(cpu_row, load) / load
    if network in table.TWO_INTERFACES:
        rate = min(
            rate * table.TWO_INTERFACES[network],
            table.REMOTE_MB_S[table.NATIVE][0],
        )
    if uplinks:
        each = max(1.0, talking / uplinks)
        rate = min(rate, _at(table.REMOTE_MB_S['shared'], each) / each)
    return rate * _scale(link_mbps)


def local_mb_s(
    network: str, load: float, link_mbps: float = table.PAPER_LINK_MBPS
) -> float:
    """Bandwidth of one pair of members on the same host, in MB/s.

    HPCVirt'09 table 5: one pair keeps two of four CPUs busy, two pairs all.
    Through a software bridge or shared memory a slow link does not matter;
    a fast one is taken as the sign of a host that is as much faster, so
    that the order of the configurations stays as measured.
    """
    row = table.LOCAL_AS.get(network, network)
    pairs = max(1.0, load / 2)
    rate = _at(table.LOCAL_MB_S[row], pairs) / pairs
    scale = _scale(link_mbps)
    return rate * (scale if _by_switch(row) else max(1.0, scale))


def _by_switch(row: str) -> bool:
    """Whether co-located members talk through the physical switch."""
    return row in ('separate', 'exported')


def remote_latency_us(network: str, load: float) -> float:
    """Latency of a small message to another host (HPCVirt'09 table 1).

    ``exported`` by-passes the host's CPUs, and its figures show no trend
    with their load: its mean is taken.
    """
    row = table.LATENCY_US[table.REMOTE_AS.get(network, network)]
    if network == 'exported':
        return sum(row) / len(row)
    return _at(row, load)


def local_latency_us(network: str, load: float) -> float:
    """Latency of a small message on the same host, in microseconds.

    Through the physical switch it is table 1's. Otherwise no paper has it;
    it is taken to fall as the bandwidth rises (table 5 over table 3).
    """
    row = table.LOCAL_AS.get(network, network)
    latency_us = remote_latency_us(row, load)
    if _by_switch(row):
        return latency_us
    return latency_us * table.REMOTE_MB_S[row][0] / table.LOCAL_MB_S[row][0]


def local_us(
    network: str, load: float, link_mbps: float = table.PAPER_LINK_MBPS
) -> float:
    """Time of a nominal message between co-located members."""
    return local_latency_us(network, load) + (
        table.MESSAGE_BYTES / local_mb_s(network, load, link_mbps)
    )


def remote_us(
    network: str,
    talking: float,
    load: float,
    link_mbps: float = table.PAPER_LINK_MBPS,
) -> float:
    """Time of a nominal message between hosts of one switch."""
    return remote_latency_us(network, load) + (
        table.MESSAGE_BYTES / remote_mb_s(network, talking, load, link_mbps)
    )


def remote_share(
    here: int, members: int, locality: float = table.LOCALITY
) -> float:
    """Share of a member's traffic that leaves its host.

    :param here: members on its host, itself included.
    :param members: members of the whole virtual cluster.
    :returns: 0.0 when all are here, 1.0 when it is alone.
    """
    if members <= 1 or here >= members:
        return 0.0
    share: float = (members - here) / (members - 1) * here**-locality
    return share


def member_us(
    network: str | None,
    here: int,
    members: int,
    load: float,
    *,
    link_mbps: float = table.PAPER_LINK_MBPS,
    tier_factor: float = 1.0,
    overcommit: float = 1.0,
    paradigm: str = 'mpi',
) -> float:
    """Mean time of a nominal message of a member on one host.

    :param here: members on its host, itself included.
    :param members: members of the whole virtual cluster.
    :param load: of its host with all members placed, by :func:`load_of`.
    :param tier_factor: mean of ``TIER_FACTOR`` over its remote peers.
    :param overcommit: vCPUs per CPU of its host.
    """
    local, remote = split_us(
        network,
        here,
        members,
        load,
        link_mbps=link_mbps,
        overcommit=overcommit,
        paradigm=paradigm,
    )
    return local + remote * tier_factor


def split_us(
    network: str | None,
    here: int,
    members: int,
    load: float,
    *,
    link_mbps: float = table.PAPER_LINK_MBPS,
    overcommit: float = 1.0,
    paradigm: str = 'mpi',
) -> tuple[float, float]:
    """:func:`member_us` in its co-located and its remote part.

    Both are 0.0 for a virtual cluster of one: nobody to talk to.
    """
    if members <= 1:
        return 0.0, 0.0
    network = network or 'shared'
    share = remote_share(here, members)
    factor = overcommit_factor(paradigm, overcommit)
    if network != 'exported':
        # The tables' columns mix the number of pairs with the lack of
        # CPUs; for programs, section 6.4 has the latter by itself. A
        # by-passed host does no packet work.
        factor *= spare_cpu_factor((FULL_LOAD - load) / (FULL_LOAD - 1.0))
    return (
        factor * (1.0 - share) * local_us(network, 1.0, link_mbps),
        factor
        * share
        * remote_us(network, max(1.0, here * share), 1.0, link_mbps),
    )


def overcommit_factor(paradigm: str, ratio: float) -> float:
    """Growth of run time at a number of vCPUs per host CPU.

    NPC'09 sections 4.2 and 6: none up to 1.0, then steep for OpenMP and
    hybrid programs, less so for MPI.
    """
    return 1.0 + table.OVERCOMMIT_SLOPE[paradigm] * max(0.0, ratio - 1.0)


def spare_cpu_factor(spare_cpus: float) -> float:
    """Growth of run time when the CPU for the packet work is missing.

    HPCVirt'09 section 6.4: 1.30 to 1.35 when there is none.

    :param spare_cpus: host CPUs that no vCPU claims; more than one gain
        nothing.
    """
    missing = 1.0 - min(1.0, max(0.0, spare_cpus))
    return 1.0 + (table.NO_SPARE_CPU - 1.0) * missing


def slowdown(
    network: str,
    here: int,
    members: int,
    load: float = FULL_LOAD,
    link_mbps: float = table.PAPER_LINK_MBPS,
) -> float:
    """Run time of a program over that on native Linux, same layout.

    All-to-all traffic, ``here`` members on each host (HPCVirt'09 section
    6.4: 2x4 is ``here=4, members=8``, 8x2 is ``here=2, members=16``).
    """
    ours = _per_mb(network, here, members, load, link_mbps)
    native = _per_mb(table.NATIVE, here, members, load, link_mbps)
    return 1.0 + table.COMMUNICATION_SHARE * (ours / native - 1.0)


def _per_mb(
    network: str, here: int, members: int, load: float, link_mbps: float
) -> float:
    """Seconds per MB of a member's all-to-all traffic."""
    share = remote_share(here, members, locality=0.0)
    return (1.0 - share) / local_mb_s(network, load, link_mbps) + (
        share / remote_mb_s(network, here, load, link_mbps)
    )
