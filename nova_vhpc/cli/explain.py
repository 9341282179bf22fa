# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``nova-vhpc-explain`` and ``openstack vhpc explain``: one class, two doors.

A REQUEST.json that contains hosts needs no cloud.
"""

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from oslo_config import cfg

from nova_vhpc import conf as conf_package
from nova_vhpc.cli import base, cluster_limits, cluster_reader, program
from nova_vhpc.clients import openstack
from nova_vhpc.conf import scheduler as scheduler_conf
from nova_vhpc.explain import cloud, explain, member_ports, model, sentences
from nova_vhpc.explain.cloud import networks, nova_options
from nova_vhpc.explain.request import ExplainRequest, Options, RequestError
from nova_vhpc.explain.request_file import read
from nova_vhpc.scheduler.sources import cost_table_file

NOVA_CONF = '/etc/nova/nova.conf'

REFUSED = (
    'a plan needs the hosts of the cloud, which only an administrator may '
    'see. openstack vhpc cluster list shows what your project may see of its '
    'own clusters; ask the operator of the cloud for more'
)

NO_PLAN = 3
"""Exit code if no hosts can take all members."""

_COLUMNS = (
    *('Host', 'Plan', 'Runs', 'Weight', 'Room', 'Link Mbps'),
    *('Switch', 'Rack', 'Filter'),
)


class Explain(base.Lister):
    """Explain where members would be placed, host by host, and why.

    The plan for the whole virtual cluster is told of on standard error. The
    exit code is 0 if there is one, 3 if there is none, 1 if the request could
    not be explained.
    """

    _planned = True

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the request."""
        parser.add_argument(
            'request',
            nargs='?',
            metavar='REQUEST.json',
            help='file with the request, - for standard input',
        )
        parser.add_argument(
            '--flavor', help='name or ID of a flavor of the cloud'
        )
        parser.add_argument('--group', help='name or ID of a server group')
        parser.add_argument(
            '--members',
            type=int,
            help='number of members to place (default: 1)',
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
            help='number of SR-IOV ports of a member, each for a PCI device',
        )
        parser.add_argument(
            '--port',
            action='append',
            dest='ports',
            metavar='PHYSNET[:KBPS]',
            help='a port of each member: physical network of its network, and '
            'the minimum bandwidth of its QoS policy in kbit/s; repeatable',
        )
        parser.add_argument(
            '--tunneled',
            action='store_true',
            default=None,
            help='each member has a port on a tunneled network (Geneve, '
            'VXLAN), such as a tenant network',
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
            help='number of hosts in a table at most, 0 for all (default: 40)',
        )
        base.add_json(parser)

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Explain the request and return the exit code."""
        status = super().run(parsed_args)
        return status or (0 if self._planned else NO_PLAN)

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Return a row for each host."""
        _check(parsed_args)
        try:
            with self.asked():
                answer = self._explained(parsed_args)
        except openstack.RefusedError:
            if parsed_args.group:
                self._tell_of(parsed_args.group)
            wrong_scope = openstack.wrong_scope(self.connection)
            raise base.CommandError(wrong_scope or REFUSED) from None
        except RequestError as error:
            raise base.CommandError(conf_package.plain(str(error))) from None
        self._planned = answer.placement.infeasible_reason is None
        hosts = answer.hosts
        if parsed_args.json:
            self.whole = answer.as_dict()
        else:
            if parsed_args.formatter == 'table' and parsed_args.limit > 0:
                hosts = hosts[: parsed_args.limit]
            if hidden := len(answer.hosts) - len(hosts):
                self.note(f'{hidden} more host(s): --limit 0 shows all.')
            for sentence in sentences.of_answer(answer):
                self.note(sentence)
        return _COLUMNS, map(_row, hosts)

    def _tell_of(self, group: str) -> None:
        """Print what a tenant may see of a cluster of its own."""
        reader = cluster_reader.ClusterReader(self.connection)
        cluster = reader.one(group, all_projects=False)
        self.note(
            f'Cluster {cluster.name}: {cluster_limits.running(cluster)} '
            f'members run, on {cluster.host_count or "?"} host(s).'
        )
        for limit in cluster_limits.limits(cluster):
            self.note(f'Limited by: {limit.text}. {limit.remedy}.')

    def _explained(self, args: argparse.Namespace) -> model.Answer:
        """Return what filter and weigher decide, and the plan.

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
            request = cloud.look_up(self.connection, request)
        if hosts is not None:
            return explain.explain(_question(request, hosts, args.move))
        hosts = cloud.hosts(self.connection, request, *keys, options)
        request = cloud.with_running_rails(self.connection, request, hosts)
        question = _question(request, hosts, args.move)
        assert request.flavor is not None
        notes = options.notes(request.flavor.extra_specs)
        if question.requirements.specs.network is not None:
            notes += networks.notes(self.connection)
        return explain.explain(dataclasses.replace(question, notes=notes))


def _check(args: argparse.Namespace) -> None:
    """Raise CommandError if arguments do not fit together."""
    if (args.request is None) == (args.flavor is None):
        raise base.CommandError(
            'give either REQUEST.json or --flavor', base.WRONG_ARGUMENTS
        )
    for name, least in (
        ('members', 1),
        ('cluster_members', 1),
        ('devices', 0),
    ):
        number = getattr(args, name)
        if number is not None and number < least:
            option = name.replace('_', '-')
            raise base.CommandError(
                f'--{option}: {number} is less than {least}',
                base.WRONG_ARGUMENTS,
            )


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
        sentences.verdict(host),
    )


PROGRAM = program.Program(
    'nova-vhpc-explain',
    'Show, host by host, what filter and weigher decide about a request, and '
    'the plan for the whole virtual cluster. The exit code is 0 if there is '
    f'a plan, {NO_PLAN} if there is none, 1 if the request could not be '
    'explained, 2 for bad arguments.',
    Explain,
    program.add_cloud,
)
main = PROGRAM.main
make_parser = PROGRAM.make_parser


if __name__ == '__main__':
    sys.exit(main())
