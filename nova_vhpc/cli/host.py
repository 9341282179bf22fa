# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``openstack vhpc host list|show``: hosts, their uplinks, their agents."""

import argparse
import datetime
from collections.abc import Iterable, Sequence
from typing import Any

from nova_vhpc.agent import errors, health
from nova_vhpc.cli import agents, base
from nova_vhpc.cli.cluster_model import Host
from nova_vhpc.cli.cluster_reader import ClusterReader
from nova_vhpc.clients import openstack


class _Facts(base.Command):
    """A command that reads hosts, and asks agents if it can."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add where facts are."""
        base.add_tier_keys(parser)
        agents.add_arguments(parser)

    def hosts(self, args: argparse.Namespace) -> dict[str, Host]:
        """Return all compute hosts by name.

        :raises CommandError: the user may not see them.
        """
        reader = ClusterReader(
            self.connection, (args.switch_key, args.rack_key)
        )
        with openstack.read():
            found = reader.hosts()
        if found is None:
            raise base.CommandError(
                'only an administrator may see the hosts of the cloud: use '
                'credentials with the role admin, or ask the operator'
            )
        return found

    def statuses(
        self, args: argparse.Namespace, hosts: Iterable[str]
    ) -> tuple[dict[str, Any], str]:
        """Return what agents answer, by host, and why some do not.

        :returns: answers; why there is none at all, empty if there may be.
        """
        try:
            with agents.Agents(args) as bus:
                answers, failures = bus.call(hosts, 'status')
        except agents.UnreachableError as error:
            if args.config_file or args.timeout:
                raise
            return {}, f'Not shown: what agents say: {error}.'
        for text in failures.values():
            self.note(f'Not shown: {text}')
        return answers, ''


class ListHost(_Facts, base.Lister):
    """List compute hosts, their uplinks and their agents."""

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Return a row for each host."""
        hosts = self.hosts(parsed_args)
        with_agents = [name for name, host in hosts.items() if host.uplinks]
        answers, missing = self.statuses(parsed_args, with_agents)
        if missing:
            self.note(missing)
        names = (
            'Host',
            'State',
            'CPUs',
            'vCPUs',
            'Switch',
            'Rack',
            'Uplinks',
            'Free Slots',
            'Agent',
        )
        return names, [
            (
                host.name,
                host.state,
                host.cpus,
                host.used_vcpus,
                host.switch,
                host.rack,
                None if host.uplinks is None else len(host.uplinks.uplinks),
                None
                if host.uplinks is None
                else sum(uplink.free for uplink in host.uplinks.uplinks),
                _agent_state(answers.get(host.name)),
            )
            for _, host in sorted(hosts.items())
        ]


class ShowHost(_Facts, base.ShowOne):
    """Show one compute host, its uplinks, and what its agent says."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the host."""
        super().add_arguments(parser)
        parser.add_argument('host', metavar='<host>', help='name in Nova')

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Sequence[Any]]:
        """Return the fields of the host."""
        host = self.hosts(parsed_args).get(parsed_args.host)
        if host is None:
            raise base.CommandError(
                f"no compute host '{parsed_args.host}'; openstack vhpc host "
                'list shows all'
            )
        answers, missing = self.statuses(parsed_args, [host.name])
        answer = answers.get(host.name)
        values = {
            'host': host.name,
            'state': host.state,
            'cpus': host.cpus,
            'used_vcpus': host.used_vcpus,
            'switch': host.switch,
            'rack': host.rack,
            'published': _published(host),
            'uplinks': base.Records(_uplinks(host)),
            'agent': _agent_state(answer),
            'servers': None if answer is None else _server_count(answer),
            'remarks': base.Lines(_remarks(host, answer)),
            'not_shown': base.Lines([missing] if missing else []),
        }
        return tuple(values), tuple(values.values())


def _agent_state(answer: Any) -> str | None:
    """Return the state of an agent in a word or two; None if unknown."""
    if answer is None:
        return None
    try:
        return agents.state(answer)
    except errors.UNREADABLE:
        return 'of another version'


def _server_count(answer: Any) -> int | None:
    try:
        return len(answer['vms'])
    except errors.UNREADABLE:
        return None


def _remarks(host: Host, answer: Any) -> list[str]:
    """Return what is wrong with a host, a sentence each."""
    found = []
    if host.uplinks is None:
        found.append(
            'no agent has published uplinks: probably none runs there'
        )
    else:
        if host.silent:
            found.append(
                f'its agent last published {host.silent_minutes} minutes ago'
            )
        found += [
            f'the link of {uplink} is down'
            for uplink in host.uplinks.uplinks
            if not uplink.up
        ]
    if answer is not None:
        try:
            found += health.sentences(answer.get('health') or {})
            found += map(str, answer['agent'].get('remarks') or ())
        except errors.UNREADABLE as error:
            found.append(agents.unreadable(host.name, error))
    return found


def _uplinks(host: Host) -> list[dict[str, Any]]:
    return [
        {
            'bridge': uplink.bridge,
            'nic': uplink.nic,
            'kind': uplink.kind.value,
            'mbps': uplink.mbps,
            'slots': uplink.slots,
            'used': uplink.used,
        }
        for uplink in (host.uplinks.uplinks if host.uplinks else ())
    ]


def _published(host: Host) -> str | None:
    """Return when the agent last published, in UTC."""
    minutes = host.uplinks.stamp_minutes if host.uplinks else None
    if minutes is None:
        return None
    moment = datetime.datetime.fromtimestamp(60 * minutes, datetime.UTC)
    return moment.isoformat(timespec='minutes')
