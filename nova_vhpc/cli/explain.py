# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``openstack vhpc explain`` and ``nova-vhpc-explain``: the planned hosts.

Both show where members would be placed, and why. A REQUEST.json that contains
hosts needs no cloud. The exit code is 0 if there is a plan for all members,
:data:`NO_PLAN` if there is none, 1 if the request could not be explained, 2
for bad arguments.
"""

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from openstack import exceptions as sdk_exceptions
from osc_lib import exceptions
from osc_lib.command import command
from oslo_config import cfg
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from nova_vhpc import conf as conf_package
from nova_vhpc import version
from nova_vhpc.cli import (
    arguments,
    base,
    cluster_limits,
    cluster_reader,
    program,
)
from nova_vhpc.clients import openstack
from nova_vhpc.conf import scheduler as scheduler_conf
from nova_vhpc.explain import cloud, explain, member_ports, model, steering
from nova_vhpc.explain.cloud import networks, nova_options
from nova_vhpc.explain.request_file import (
    ExplainRequest,
    Options,
    RequestError,
    read,
)
from nova_vhpc.scheduler.planner import host_weights
from nova_vhpc.scheduler.sources import cost_table_file

NOVA_CONF = '/etc/nova/nova.conf'

REFUSED = (
    'a plan needs the hosts of the cloud, which only an administrator may '
    'see. openstack vhpc cluster list shows what your project may see of its '
    'own clusters; ask the operator of the cloud for more'
)

NO_PLAN = 3
"""Exit code if no hosts can take all members."""


_WIDTH = 160
"""Width of the sentences on standard error, in characters."""

_COLUMNS = (
    *('Host', 'Plan', 'Runs', 'Weight', 'Room', 'Link Mbps'),
    *('Switch', 'Rack', 'Filter'),
)


class Explain(base.Command, command.Lister):
    """Explain where members would be placed, host by host, and why.

    The plan for the whole cluster is written to standard error. The exit code
    is 0 if there is one, 3 if there is none, 1 if the request could not be
    explained.
    """

    _planned = True

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the command line."""
        parser = super().get_parser(prog_name)
        add_arguments(parser)
        return parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Explain the request and return the exit code."""
        status = super().run(parsed_args)
        return status or (0 if self._planned else NO_PLAN)

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Return a row for each host."""
        answer = self.answer(parsed_args)
        console = Console(file=self.app.stderr, width=_WIDTH)
        limit = parsed_args.limit
        hosts = answer.hosts[:limit] if limit > 0 else answer.hosts
        if hidden := len(answer.hosts) - len(hosts):
            console.print(f'{hidden} more host(s): --limit 0 shows all.')
        _print_findings(console, answer)
        return _COLUMNS, [_row(host) for host in hosts]

    def answer(self, args: argparse.Namespace) -> model.Answer:
        """Return what filter and weigher decide.

        :raises CommandError: the arguments do not fit together, or the user
            may not see the hosts.
        """
        try:
            check(args)
            answer = explained(args, lambda: self.connection)
        except ValueError as error:
            raise exceptions.CommandError(str(error)) from None
        except (openstack.RefusedError, sdk_exceptions.ForbiddenException):
            if args.group:
                self._tell_of(args.group)
            raise exceptions.CommandError(REFUSED) from None
        self._planned = answer.placement.infeasible_reason is None
        return answer

    def _tell_of(self, group: str) -> None:
        """Print what a tenant may see of a cluster of its own."""
        reader = cluster_reader.ClusterReader(self.connection)
        cluster = reader.one(group, all_projects=False)
        self.note(
            f'Cluster {cluster.name}: {cluster.running} of '
            f'{len(cluster.members)} members run, on {cluster.host_count} '
            'host(s).'
        )
        for limit in cluster_limits.limits(cluster):
            self.note(f'Limited by: {limit.text}. {limit.remedy}.')


class _Document(Explain):
    """Print the whole answer as JSON instead of a table."""

    def _run(self, parsed_args: argparse.Namespace) -> int:
        arguments.print_json(self.answer(parsed_args).as_dict())
        return 0


def main(argv: list[str] | None = None, connection: Any = None) -> int:
    """Run ``nova-vhpc-explain`` and return its exit code.

    :param connection: openstacksdk connection; None to connect if needed.
    """
    arguments.take_any_name()
    parser = make_parser()
    args = parser.parse_args(argv)
    try:
        check(args)
    except ValueError as error:
        parser.error(str(error))
    try:
        return program.run(
            _Document if args.json else Explain, args, connection
        )
    except exceptions.CommandError as error:
        print(f'nova-vhpc-explain: {error}', file=sys.stderr)
        return 1


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the program's command line."""
    parser = arguments.ArgumentParser(
        prog='nova-vhpc-explain',
        description='Show, host by host, what filter and weigher decide '
        'about a request, and the plan for the whole virtual cluster. The '
        f'exit code is 0 if there is a plan, {NO_PLAN} if there is none, 1 if '
        'the request could not be explained, 2 for bad arguments.',
    )
    version.add_argument(parser)
    openstack.add_arguments(parser)
    add_arguments(parser)
    parser.add_argument('--json', action='store_true', help='print JSON')
    return parser


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that :func:`explained` reads."""
    parser.add_argument(
        'request',
        nargs='?',
        metavar='REQUEST.json',
        help='file with the request, - for standard input',
    )
    parser.add_argument('--flavor', help='name or ID of a flavor of the cloud')
    parser.add_argument('--group', help='name or ID of a server group')
    parser.add_argument(
        '--members', type=int, help='number of members to place (default: 1)'
    )
    parser.add_argument(
        '--cluster-members',
        type=int,
        help='number of members that the cluster will have if its servers '
        'are created one at a time, as in the scheduler hint vhpc_members',
    )
    parser.add_argument(
        '--move',
        action='store_true',
        help='also show what moves of the members that run would gain; '
        'nothing is moved',
    )
    parser.add_argument(
        '--devices',
        type=int,
        help='number of SR-IOV ports of a member (each takes a PCI device)',
    )
    parser.add_argument(
        '--port',
        action='append',
        dest='ports',
        metavar='PHYSNET[:KBPS]',
        help='a port of each member: physical network of its network, and the '
        'minimum bandwidth of its QoS policy in kbit/s; may be repeated',
    )
    parser.add_argument(
        '--tunneled',
        action='store_true',
        default=None,
        help='each member has a port on a tunneled network (Geneve, VXLAN), '
        'such as a tenant network',
    )
    parser.add_argument(
        '--config-file',
        metavar='FILE',
        help="nova-scheduler's configuration file, for [vhpc_scheduler] "
        f'(default: {NOVA_CONF} if it is readable)',
    )
    parser.add_argument(
        '--limit',
        type=int,
        default=40,
        help='number of hosts to print at most, 0 for all (default: 40)',
    )


def check(args: argparse.Namespace) -> None:
    """Raise ValueError if arguments do not fit together."""
    if (args.request is None) == (args.flavor is None):
        raise ValueError('give either REQUEST.json or --flavor')
    for name, least in (
        ('members', 1),
        ('cluster_members', 1),
        ('devices', 0),
    ):
        number = getattr(args, name)
        if number is not None and number < least:
            option = name.replace('_', '-')
            raise ValueError(f'--{option}: {number} is less than {least}')


def explained(
    args: argparse.Namespace, connect: Callable[[], Any]
) -> model.Answer:
    """Return what filter and weigher decide about a request, and the plan.

    :param args: arguments of :func:`add_arguments`, checked.
    :param connect: returns an openstacksdk connection; called if needed.
    :raises CloudError: the cloud cannot be asked.
    :raises RequestError: the request cannot be explained.
    """
    if args.request is None:
        request, hosts = ExplainRequest(flavor_name=args.flavor), None
    else:
        request, hosts = read(_load(args.request))
    given = {
        'group_name': args.group,
        'members': args.members,
        'cluster_members': args.cluster_members,
        'devices': args.devices,
        'ports': args.ports and tuple(map(_port, args.ports)),
        'tunneled': args.tunneled,
    }
    request = dataclasses.replace(
        request, **{k: v for k, v in given.items() if v is not None}
    )
    keys = ('vhpc:switch', 'vhpc:rack')
    options = nova_options.NovaOptions()
    if args.request is None or args.config_file:
        request, keys, options = _configured(request, args.config_file)
    if hosts is None or request.flavor_name or request.group_name:
        connection = connect()
        request = cloud.look_up(connection, request)
    if hosts is not None:
        return explain.explain(_question(request, hosts, args.move))
    hosts = cloud.hosts(connection, request, *keys, options)
    request = cloud.with_running_rails(connection, request, hosts)
    question = _question(request, hosts, args.move)
    assert request.flavor is not None
    notes = options.notes(request.flavor.extra_specs)
    if question.requirements.specs.network is not None:
        notes += networks.notes(connection)
    return explain.explain(dataclasses.replace(question, notes=notes))


def _port(text: str) -> member_ports.Port:
    try:
        return member_ports.parse(text)
    except ValueError as error:
        raise RequestError(f'--port: {error}') from None


def _question(
    request: ExplainRequest, hosts: tuple[model.Host, ...], moves: bool
) -> model.Question:
    question = request.question(hosts)
    if moves and not request.existing:
        raise RequestError('--move: no member of the server group runs')
    return dataclasses.replace(question, moves=moves)


def _load(path: str) -> Any:
    try:
        # JSON is UTF-8 whatever the locale.
        if path == '-':
            return json.loads(sys.stdin.buffer.read().decode())
        return json.loads(Path(path).read_text('utf-8'))
    except UnicodeDecodeError as error:
        raise RequestError(f'{path}: not UTF-8 text: {error}') from None
    except ValueError as error:
        # Raised by a number of thousands of digits, too.
        raise RequestError(f'{path}: not JSON: {error}') from None
    except RecursionError:
        raise RequestError(f'{path}: nested too deeply') from None


def _configured(
    request: ExplainRequest, config_file: str | None
) -> tuple[ExplainRequest, tuple[str, str], nova_options.NovaOptions]:
    """Read nova-scheduler's options for a request.

    :returns: the request with the options of ``[vhpc_scheduler]``, the keys
        of aggregate metadata for switch and rack, and Nova's own options.
    """
    conf = cfg.ConfigOpts()
    scheduler_conf.register_opts(conf)
    nova_options.register_opts(conf)
    files: Sequence[str] = []
    if config_file:
        files = [config_file]
    elif os.access(NOVA_CONF, os.R_OK):
        files = [NOVA_CONF]
    try:
        # nova-scheduler's name, for its own directory besides nova.conf.d.
        conf(
            [],
            project='nova',
            prog='nova-scheduler',
            default_config_files=files,
        )
    except UnicodeDecodeError as error:
        raise RequestError(conf_package.reason(error)) from None
    group = conf.vhpc_scheduler
    try:
        costs = cost_table_file.read(group.cost_table)
    except ValueError as error:
        raise RequestError(str(error)) from None
    options = Options(
        spare_cpus=group.spare_cpus,
        max_overcommit=group.max_overcommit,
        allow_unknown=group.unknown_topology == 'allow',
        topology_max_age_s=group.topology_max_age,
        weight_of_unknown=group.weight_of_unknown,
        weight_multiplier=group.weight_multiplier,
        costs=costs,
    )
    return (
        dataclasses.replace(request, options=options),
        (group.switch_key, group.rack_key),
        nova_options.read(conf, known=bool(files)),
    )


def _print_findings(console: Console, answer: model.Answer) -> None:
    """Print all of an answer but the table of hosts."""
    for note in answer.notes:
        console.print(note, markup=False)
    for flaw in answer.flaws:
        console.print(f'Wrong with the flavor: {flaw}', markup=False)
    if answer.moves:
        _print_moves(console, answer)
    placement = answer.placement
    if placement.infeasible_reason is not None:
        console.print(f'No plan: {placement.infeasible_reason}', markup=False)
        return
    console.print(
        f'Plan: {len(placement.assignments)} host(s), smallest tier that '
        f'holds all: {placement.tier.name.lower()}, predicted cost '
        f'{placement.cost:.0f} us per message.'
    )
    if answer.expected:
        console.print(
            f'The plan has room for {answer.expected} member(s) that are '
            'still to come.'
        )
    if placement.own_overcommit > 1.0:
        console.print(
            'Members share CPUs with each other, up to '
            f'{placement.own_overcommit:.2f} of the vCPUs of the cluster per '
            'CPU of a host, and take turns: without that, they do not fit.'
        )
    _print_steering(console, answer)
    if answer.slowdown is not None:
        console.print(
            'Predicted run time of an all-to-all program over native '
            f'Linux under one switch: {answer.slowdown:.2f}.'
        )


def _print_steering(console: Console, answer: model.Answer) -> None:
    """Print what makes packets take the uplinks of the plan's claims."""
    planned = [host for host in answer.hosts if host.planned]
    for way, words in steering.WORDS.items():
        count = sum(host.steered_by == way for host in planned)
        if count:
            console.print(
                f"Members' packets take their uplinks on {count} host(s) of "
                f'the plan {words}.',
                markup=False,
            )
    unsteered = [host for host in planned if host.unsteered is not None]
    if unsteered:
        console.print(
            f'No claim steers packets on {len(unsteered)} host(s) of the '
            f'plan; {unsteered[0].name}, for one: {unsteered[0].unsteered}.',
            markup=False,
        )
    stray = answer.placement.stray_share
    if stray:
        console.print(
            f'Members are on different rails: {stray:.0%} of the frames '
            'between hosts leave by uplinks that the cluster has not claimed '
            'for them.'
        )


def _print_moves(console: Console, answer: model.Answer) -> None:
    table = Table(title='What moves of running members would gain')
    for name in ('moves', 'cost us', 'gain', 'tier'):
        table.add_column(name, no_wrap=True)
    for name in ('leave', 'join'):
        table.add_column(name, overflow='fold')
    for step in answer.moves:
        table.add_row(
            str(step.moves),
            f'{step.placement.cost:.0f}',
            f'{step.gain_over(answer.moves[0]):.0%}' if step.moves else '',
            step.placement.tier.name.lower(),
            *(
                escape(
                    ', '.join(f'{n} {name}' for name, n in sorted(at.items()))
                )
                for at in (step.leave, step.join)
            ),
        )
    console.print(table)
    if len(answer.moves) == 1:
        console.print('No move of its members makes the cluster better.')


def _row(host: model.HostAnswer) -> tuple[Any, ...]:
    return (
        host.name,
        host.planned,
        host.running,
        None if host.weight is None else round(host.weight, 3),
        host.capacity,
        host.link_mbps,
        host.switch,
        host.rack,
        words(host),
    )


def words(host: model.HostAnswer) -> str:
    """Return in a few words why a host is rejected, or that it passes."""
    if host.reason is not None:
        return f'{host.rejected_by}: {host.reason}'
    if not host_weights.is_planned(host.multiplier):
        return f'passes, not planned: weight multiplier {host.multiplier:g}'
    if host.unknown:
        return 'passes, topology unknown'
    if host.devices_unknown:
        return 'passes, its PCI devices are unknown here'
    if host.planned_uplinks:
        return 'passes: ' + ', '.join(
            f'{uplink}, rail {rail or "unknown"}'
            for uplink, rail in zip(
                host.planned_uplinks, host.rails, strict=False
            )
        )
    if host.uplinks:
        return 'passes: ' + ', '.join(host.uplinks[:2])
    return 'passes'


if __name__ == '__main__':
    sys.exit(main())
