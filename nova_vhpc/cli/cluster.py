# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``openstack vhpc cluster``: virtual clusters and what slows them down."""

import argparse
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nova_vhpc.cli import agents, base, cluster_limits
from nova_vhpc.cli.cluster_model import Cluster, Host, Member, MemberState
from nova_vhpc.cli.cluster_reader import ClusterReader
from nova_vhpc.flavor import extra_specs
from nova_vhpc.scheduler.planner.model import Tier

_TIERS = {
    Tier.HOST: 'host',
    Tier.SWITCH: 'switch',
    Tier.RACK: 'rack',
    Tier.ALL: 'several racks',
}

NO_CLUSTER = (
    'No server group has a server whose flavor has vhpc: extra specs; see '
    'openstack vhpc flavor set.'
)
NONE_OF_OWN = (
    'Your project has no virtual cluster: no server group with a server whose '
    'flavor has vhpc: extra specs. Administrators see those of all projects '
    'with --all-projects.'
)
NOTHING_FOUND = 'nothing that can be seen from here'


class _Command(base.Command):
    """A command about clusters."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add where to look."""
        parser.add_argument(
            '--all-projects',
            action='store_true',
            help='look at the clusters of all projects (administrators only)',
        )
        base.add_tier_keys(parser)
        agents.add_arguments(parser)

    def reader(self, args: argparse.Namespace) -> ClusterReader:
        """Return the reader for the user's connection."""
        return ClusterReader(self.connection, (args.switch_key, args.rack_key))

    def with_states(
        self, args: argparse.Namespace, clusters: Sequence[Cluster]
    ) -> tuple[list[Cluster], list[str]]:
        """Return clusters with what agents say, and what is missing of it."""
        hosts = {name for one in clusters for name in one.hosts or ()}
        if not hosts:
            # Nobody can be asked of servers whose hosts are unknown.
            return list(clusters), []
        try:
            with agents.Agents(args) as bus:
                answers, failures = bus.call(sorted(hosts), 'status')
        except agents.UnreachableError as error:
            if args.config_file or args.timeout:
                raise
            return list(clusters), [
                f'Not shown: CPU time received, which agents measure: {error}.'
            ]
        states, unreadable = agents.member_states(answers)
        missing = [*failures.values(), *unreadable.values()]
        return (
            [_with_states(one, states) for one in clusters],
            [f'Not shown: {text}' for text in missing],
        )


def _with_states(
    cluster: Cluster, states: Mapping[tuple[str, str], MemberState]
) -> Cluster:
    """Return a cluster with what the agents of its members' hosts say.

    :param states: states by host and UUID of the server.
    """
    found = {
        member.uuid: states.get((member.host or '', member.uuid))
        for member in cluster.members
    }
    return dataclasses.replace(
        cluster,
        states={uuid: state for uuid, state in found.items() if state},
    )


class ListCluster(_Command, base.Lister):
    """List virtual clusters, what limits each, and what to do about it."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add how much to show."""
        super().add_arguments(parser)
        parser.add_argument(
            '--long',
            action='store_true',
            help='also show project, policy, vCPUs, network configuration',
        )

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Return a row for each cluster."""
        reader = self.reader(parsed_args)
        clusters = reader.every(parsed_args.all_projects)
        if not clusters:
            self.note(NO_CLUSTER if parsed_args.all_projects else NONE_OF_OWN)
        clusters, missing = self.with_states(parsed_args, clusters)
        for text in (*reader.unseen, *missing):
            self.note(text)
        names: tuple[str, ...] = (
            'ID',
            'Name',
            'Members',
            'Running',
            'Hosts',
            'Tier',
            'CPU Received',
            'Limited By',
            'What To Do',
        )
        if parsed_args.long:
            names += ('Project', 'Policy', 'vCPUs', 'Network')
        return names, [_row(cluster)[: len(names)] for cluster in clusters]


def _row(cluster: Cluster) -> tuple[Any, ...]:
    found = cluster_limits.limits(cluster)
    first = found[0] if found else cluster_limits.Limit(NOTHING_FOUND, '')
    return (
        cluster.uuid,
        cluster.name,
        len(cluster.members),
        cluster.running,
        cluster.host_count,
        _tier(cluster),
        _rounded(cluster.received),
        first.text,
        first.remedy,
        cluster.project_id,
        cluster.policy,
        cluster.vcpus,
        ', '.join(_networks(cluster)) or None,
    )


class ShowCluster(_Command, base.ShowOne):
    """Show one virtual cluster, its members, and all that limits it."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the cluster."""
        super().add_arguments(parser)
        parser.add_argument(
            'cluster', metavar='<cluster>', help='server group: name or ID'
        )

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Sequence[Any]]:
        """Return the fields of the cluster."""
        reader = self.reader(parsed_args)
        cluster = reader.one(parsed_args.cluster, parsed_args.all_projects)
        (cluster,), missing = self.with_states(parsed_args, [cluster])
        limits = cluster_limits.limits(cluster)
        hosts = cluster.hosts
        values = {
            'id': cluster.uuid,
            'name': cluster.name,
            'project_id': cluster.project_id,
            'policy': cluster.policy,
            'network': ', '.join(_networks(cluster)) or None,
            'vcpus': cluster.vcpus,
            'running': cluster_limits.running(cluster),
            'hosts': cluster.host_count,
            'tier': _tier(cluster),
            'switches': _places(hosts, 'switch'),
            'racks': _places(hosts, 'rack'),
            'cpu_received': _rounded(cluster.received),
            'members': base.Records(
                [_member(cluster, member) for member in cluster.members]
            ),
            'limited_by': base.Lines(
                [limit.text for limit in limits] or [NOTHING_FOUND]
            ),
            'what_to_do': base.Lines([limit.remedy for limit in limits]),
            'not_shown': base.Lines([*reader.unseen, *missing]),
        }
        return tuple(values), tuple(values.values())


def _member(cluster: Cluster, member: Member) -> dict[str, Any]:
    """Return what is known of a member, without what may not be seen."""
    values: dict[str, Any] = {
        'name': member.name,
        'id': member.uuid,
        'status': member.status,
        'vcpus': member.vcpus,
        'flavor': member.flavor,
    }
    host = (cluster.hosts or {}).get(member.host or '')
    if host is not None:
        values['host'] = host.name
        found = [host.uplink(uuid) for uuid in member.claims or ()]
        values['uplinks'] = [
            f'{uplink.bridge}:{uplink.nic}' for uplink in found if uplink
        ]
    state = (cluster.states or {}).get(member.uuid)
    if state is not None:
        values['cpu_received'] = _rounded(state.received)
        values['sync_latency_us'] = state.latency_us
        if state.waiting is not None:
            values['waiting'] = f'{state.waiting}: {state.remedy}'
    return values


def _tier(cluster: Cluster) -> str | None:
    tier = cluster.tier
    return None if tier is None else _TIERS[tier]


def _networks(cluster: Cluster) -> list[str]:
    """Return the network configurations of the members' flavors."""
    found = {extra_specs.parse(m.specs or {}).network for m in cluster.members}
    return sorted(name for name in found if name is not None)


def _places(hosts: Mapping[str, Host] | None, tier: str) -> base.Lines | None:
    """Return the switches or racks of hosts; None if they may not be seen."""
    if hosts is None:
        return None
    return base.Lines(
        sorted({getattr(host, tier) for host in hosts.values()} - {None})
    )


def _rounded(part: float | None) -> float | None:
    return None if part is None else round(part, 2)
