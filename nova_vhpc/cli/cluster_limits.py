# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What slows a virtual cluster down, and what to do about it.

The most important limit comes first. Nothing is said of what the user may not
see; what is unknown is called so. A remedy must be true and harmless in every
state that leads to it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from nova_vhpc.cli.cluster_model import UNKNOWN, Cluster, Host, Member
from nova_vhpc.flavor import cpu_policy, extra_specs, recipes, validation
from nova_vhpc.flavor.request_groups import BRIDGE_TRAITS
from nova_vhpc.scheduler.planner.model import Tier
from nova_vhpc.top.model import RECEIVED_ENOUGH

MOST_NAMES = 3
"""Most names in one sentence."""


class Limit(NamedTuple):
    """Something that slows a cluster down.

    :ivar text: what it is.
    :ivar remedy: what to do about it.
    """

    text: str
    remedy: str


def limits(cluster: Cluster) -> list[Limit]:
    """Return what slows a cluster down, the most important first."""
    return [limit for find in _FINDERS for limit in find(cluster)]


_REMEDIES = {
    'SHUTOFF': 'openstack server start',
    'PAUSED': 'openstack server unpause',
    'SUSPENDED': 'openstack server resume',
    'SHELVED': 'openstack server unshelve',
    'SHELVED_OFFLOADED': 'openstack server unshelve',
    'RESCUE': 'openstack server unrescue',
    'ERROR': 'openstack server show, whose field fault says why',
}
"""What to do about members that do not run, by their status."""

_BUSY = ('BUILD', 'HARD_REBOOT', 'REBUILD', 'RESIZE', 'REVERT_RESIZE')
"""Statuses that Nova ends by itself."""


def running(cluster: Cluster) -> str:
    """Return how many members run, and of how many Nova does not know."""
    count = sum(member.running is True for member in cluster.members)
    unknown = sum(member.running is None for member in cluster.members)
    text = f'{count} of {len(cluster.members)}'
    return f'{text}, {unknown} unknown' if unknown else text


def _unknown(cluster: Cluster) -> Iterator[Limit]:
    for cell_is_down, why in (
        (True, 'cell is down'),
        (False, 'host does not say'),
    ):
        found = [
            member.name
            for member in cluster.members
            if member.running is None
            and (member.status == UNKNOWN) is cell_is_down
        ]
        if found:
            many = len(found) > 1
            yield Limit(
                f'Nova does not know the state of {len(found)} '
                f'member{"s" if many else ""} ({_names(found)}): '
                f'{"their" if many else "its"} {why}',
                'ask the operator of the cloud; they probably run, so leave '
                'them as they are',
            )


def _not_running(cluster: Cluster) -> Iterator[Limit]:
    stopped = [m for m in cluster.members if m.running is False]
    if stopped:
        statuses = {member.status for member in stopped}
        yield Limit(
            f'{len(stopped)} of {len(cluster.members)} members do not run'
            + (' or are in ERROR: ' if 'ERROR' in statuses else ': ')
            + _names(f'{m.name} ({m.status})' for m in stopped),
            '; '.join(map(_remedy, sorted(statuses))),
        )


def _remedy(status: str) -> str:
    """Return what to do about a member that does not run."""
    if status in _BUSY:
        return f'{status}: wait until Nova is done'
    command = _REMEDIES.get(status, 'openstack server show, and the operator')
    return f'{status}: {command}'


def _wrong_flavor(cluster: Cluster) -> Iterator[Limit]:
    flavors = {m.flavor: m for m in cluster.members if m.flavor is not None}
    for name, member in sorted(flavors.items()):
        problems = validation.problems(member.specs or {})
        if problems:
            yield Limit(
                f'flavor {name}: {problems[0]}',
                'an administrator can make a right flavor (openstack vhpc '
                'flavor set); resize the members to it, which keep the extra '
                'specs that they were created with',
            )


def _host_down(cluster: Cluster) -> Iterator[Limit]:
    down = [host.name for host in _hosts(cluster) if host.state != 'up']
    if down:
        yield Limit(
            f'nova-compute is down on {_names(down)}',
            'look at the host: its servers may run all the same, so do not '
            'evacuate them before it is off',
        )


def _dead_link(cluster: Cluster) -> Iterator[Limit]:
    dead: dict[tuple[str, str], list[str]] = {}
    for member, host in _placed(cluster):
        for uuid in member.claims or ():
            uplink = host.uplink(uuid)
            # What a silent agent has published is not known to be so now.
            if uplink is not None and not uplink.up and not host.silent:
                place = (host.name, str(uplink))
                dead.setdefault(place, []).append(member.name)
    for (host_name, uplink_name), names in sorted(dead.items()):
        yield Limit(
            f'the link of {uplink_name} of host {host_name} is down, which '
            f'{_names(names)} claimed',
            'mend the link (cable, switch port), or migrate the members, '
            'which then claim another uplink where one is free',
        )


def _unclaimed(cluster: Cluster) -> Iterator[Limit]:
    found = [
        member.name
        for member, _ in _placed(cluster)
        if member.claims == () and _should_claim(member)
    ]
    if found:
        yield Limit(
            f'{_names(found)} claimed no uplink, although the flavor asks for '
            'one: others may be given the same',
            'openstack vhpc flavor show says whether the flavor is right; if '
            'it is, a cold migration has them claim one, and stops them '
            'meanwhile',
        )


def _slow(cluster: Cluster) -> Iterator[Limit]:
    states = cluster.states or {}
    slow = [
        f'{member.name} ({state.received:.0%})'
        for member in cluster.members
        if (state := states.get(member.uuid)) is not None
        and state.received is not None
        and state.received < RECEIVED_ENOUGH
    ]
    if slow:
        yield Limit(
            'less CPU time than stock Linux would give: ' + _names(slow),
            'see the remarks of openstack vhpc host show. If they do not '
            'help: openstack vhpc host pause gives the host back to stock '
            'Linux, with all of its servers',
        )


def _uncontrolled(cluster: Cluster) -> Iterator[Limit]:
    states = cluster.states or {}
    problems = [
        f'{member.name}: {state.problem}'
        for member in cluster.members
        if (state := states.get(member.uuid)) is not None and state.problem
    ]
    if problems:
        yield Limit(
            f'agents do not control {len(problems)} member(s): '
            + _names(problems),
            'see openstack vhpc host show of their hosts',
        )


def _spinning(cluster: Cluster) -> Iterator[Limit]:
    found = [
        (f'{member.name} {state.waiting}', state.remedy)
        for member in cluster.members
        if (state := (cluster.states or {}).get(member.uuid)) is not None
        and state.held_up
    ]
    if found:
        yield Limit(_names(finding for finding, _ in found), found[0][1])


def _own_overcommit(cluster: Cluster) -> Iterator[Limit]:
    found = [
        f'{host.name} ({vcpus} vCPUs on {host.cpus} CPUs)'
        for host, vcpus in _vcpus_by_host(cluster)
        if vcpus > host.cpus > 0
    ]
    if found:
        yield Limit(
            f'members share CPUs with each other on {_names(found)}',
            'give the cluster more hosts: migrate members away; '
            + _explain(cluster),
        )


def _overcommit(cluster: Cluster) -> Iterator[Limit]:
    full = [
        (host, vcpus)
        for host, vcpus in _vcpus_by_host(cluster)
        if host.used_vcpus > host.cpus >= vcpus
    ]
    if full:
        names = _names(
            f'{host.name} ({host.overcommit:.2f} vCPUs per CPU)'
            for host, _ in full
        )
        flavors = sorted(filter(None, {m.flavor for m in cluster.members}))
        yield Limit(
            f'members share CPUs with other servers on {names}',
            'migrate other servers away; for members to come, openstack vhpc '
            f'flavor set {flavors[0]} --max-overcommit 1 keeps full hosts out',
        )


def _no_agent(cluster: Cluster) -> Iterator[Limit]:
    found = [host.name for host in _hosts(cluster) if host.has_no_agent]
    if found:
        yield Limit(
            f'no agent has published the uplinks of {_names(found)}: probably '
            'none runs there, and nothing coordinates the vCPUs of members',
            'start nova-vhpc-agent on these hosts',
        )
    silent = [
        f'{host.name} (for {host.silent_minutes} minutes)'
        for host in _hosts(cluster)
        if host.silent
    ]
    if silent:
        yield Limit(
            f'the agent has been silent on {_names(silent)}',
            'see there whether nova-vhpc-agent runs and reaches Placement; '
            'by default, the scheduler rejects a host whose agent is silent',
        )


def _spread(cluster: Cluster) -> Iterator[Limit]:
    tier = cluster.tier
    if tier is Tier.RACK:
        count = len({host.switch for host in _hosts(cluster)})
        yield Limit(
            f'its messages cross {count} switches of one rack',
            _explain(cluster),
        )
    elif tier is Tier.ALL:
        count = len({host.rack for host in _hosts(cluster)})
        yield Limit(f'its messages cross {count} racks', _explain(cluster))
    elif tier is None and cluster.hosts:
        found = [host.name for host in _hosts(cluster) if host.switch is None]
        if found:
            yield Limit(
                f'it is unknown at which switch {_names(found)} are',
                'put them into aggregates with the metadata vhpc:switch and '
                'vhpc:rack',
            )


_FINDERS: Sequence[Callable[[Cluster], Iterator[Limit]]] = (
    _unknown,
    _not_running,
    _wrong_flavor,
    _host_down,
    _dead_link,
    _unclaimed,
    _slow,
    _uncontrolled,
    _spinning,
    _own_overcommit,
    _overcommit,
    _no_agent,
    _spread,
)


def _explain(cluster: Cluster) -> str:
    """Return the command that shows what moves of members would gain."""
    # A member in a cell that is down has none.
    flavor = next(filter(None, (m.flavor for m in cluster.members)), 'FLAVOR')
    return (
        f'openstack vhpc explain --flavor {flavor} --group {cluster.uuid} '
        '--move shows what moves would gain'
    )


def _hosts(cluster: Cluster) -> list[Host]:
    return list((cluster.hosts or {}).values())


def _placed(cluster: Cluster) -> Iterator[tuple[Member, Host]]:
    """Yield each member of which the host may be seen, with the host."""
    hosts = cluster.hosts or {}
    for member in cluster.members:
        host = hosts.get(member.host or '')
        if host is not None:
            yield member, host


def _vcpus_by_host(cluster: Cluster) -> list[tuple[Host, int]]:
    """Return each host with its members' vCPUs that have no CPU of their
    own."""
    found: dict[str, int] = {}
    for member, host in _placed(cluster):
        if not cpu_policy.dedicated_by(member.specs or {}):
            found[host.name] = found.get(host.name, 0) + (member.vcpus or 0)
    return [(h, found[h.name]) for h in _hosts(cluster) if h.name in found]


def _should_claim(member: Member) -> bool:
    """Return whether the flavor of a member requests uplinks itself."""
    specs = member.specs or {}
    network = extra_specs.parse(specs).network
    return (
        network is not None
        and bool(BRIDGE_TRAITS[network])
        and not recipes.uses_ports(specs)
    )


def _names(names: Iterable[str]) -> str:
    """Return names as text, the first few of many."""
    found = list(names)
    shown = ', '.join(found[:MOST_NAMES])
    more = len(found) - MOST_NAMES
    return f'{shown} and {more} more' if more > 0 else shown
