# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``openstack vhpc cluster topology``: places of members for job schedulers.

It prints what ``nova-vhpc-hosts`` prints on a member, with the same IDs.
"""

import argparse
import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from oslo_config import cfg

from nova_vhpc.cli import arguments, base
from nova_vhpc.cli.cluster_model import Cluster
from nova_vhpc.cli.cluster_reader import ClusterReader
from nova_vhpc.clients import openstack
from nova_vhpc.conf import nova_api as nova_conf
from nova_vhpc.conf import vendordata as vendordata_conf
from nova_vhpc.vendordata import opaque_ids
from nova_vhpc.vendordata.guest import topology_files

SWITCHES_UNSEEN = (
    'Not shown: switches and racks, which only an administrator may see here; '
    'each host counts as a switch. Members know them if the cloud has '
    'vendordata: run nova-vhpc-hosts on one, or give what it reads by '
    '--vendor-data.'
)
UNKEYED = (
    'the IDs of hosts, switches and racks need the secret of vendordata, of '
    '[vhpc_vendordata]id_secret or id_secret_file: run this on its host as '
    'root, or name a file with that id_secret by --config-file, or give what '
    'a member reads by --vendor-data'
)


class TopologyCluster(base.Command):
    """Print where members are, for job schedulers.

    Hosts, switches and racks have the IDs that members get from vendordata,
    never names.
    """

    auth_required = False
    """The client logs in before it reads the arguments, and ``--vendor-data``
    needs no login: :meth:`run` makes up for it."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add clusters or files, and the format."""
        parser.add_argument(
            'cluster',
            nargs='*',
            metavar='<cluster>',
            help='server group: name or ID; several make one topology',
        )
        parser.add_argument(
            '--format',
            required=True,
            type=arguments.word_of(topology_files.TOPOLOGY_FORMATS),
            metavar='<format>',
            help='what to print, such as slurm-conf for topology.conf; one '
            'of: ' + ', '.join(sorted(topology_files.TOPOLOGY_FORMATS)),
        )
        parser.add_argument(
            '--vendor-data',
            action='append',
            metavar='<file>',
            help='instead of asking the cloud: vendor_data2.json as a member '
            'of a cluster reads it, may be repeated for several clusters',
        )
        parser.add_argument(
            '--vendor-data-target',
            default='vhpc',
            metavar='<name>',
            help='name of the service in that file (default: %(default)s)',
        )
        parser.add_argument(
            '--nodes',
            metavar='<name>,...',
            help='names of all nodes of the job scheduler: those that are no '
            'servers yet are in the topology, too',
        )
        parser.add_argument(
            '--all-projects',
            action='store_true',
            help='look among the clusters of all projects (administrators '
            'only)',
        )
        parser.add_argument(
            '--config-file',
            action='append',
            metavar='<file>',
            help="vendordata's configuration, for the secret of the IDs "
            '(administrators only); without it the usual places, such as '
            '/etc/nova-vhpc/nova-vhpc.conf',
        )
        base.add_tier_keys(parser)

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Run the command, after the login if it asks the cloud."""
        if parsed_args.cluster and not parsed_args.vendor_data:
            self.auth_required = True
            self.app.prepare_to_run_command(self)
        return super().run(parsed_args)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Print the file.

        :raises CommandError: the members cannot be had, or have names that
            no node can have.
        """
        if bool(parsed_args.cluster) == bool(parsed_args.vendor_data):
            raise base.CommandError(
                'give clusters or --vendor-data, one of the two'
            )
        members = (
            list(_from_files(parsed_args))
            if parsed_args.vendor_data
            else list(self._from_cloud(parsed_args))
        )
        nodes = parsed_args.nodes.split(',') if parsed_args.nodes else []
        form = topology_files.TOPOLOGY_FORMATS[parsed_args.format]
        try:
            text = form(topology_files.with_nodes(members, nodes))
        except ValueError as error:
            raise base.CommandError(str(error)) from None
        self.app.stdout.write(text)

    def _from_cloud(
        self, args: argparse.Namespace
    ) -> Iterator[dict[str, Any]]:
        reader = ClusterReader(
            self.connection, (args.switch_key, args.rack_key)
        )
        clusters = [
            reader.one(name, args.all_projects)
            for name in dict.fromkeys(args.cluster)
        ]
        if any(cluster.hosts is None for cluster in clusters):
            self.note(SWITCHES_UNSEEN)
            secret = None
        else:
            secret = _secret(args.config_file)
        for cluster in clusters:
            yield from _members(cluster, secret)


def _members(
    cluster: Cluster, secret: bytes | None
) -> Iterator[dict[str, Any]]:
    """Yield the members of a cluster as vendordata has them.

    That is, without servers of other projects.

    :param secret: secret of the IDs; None if hosts are known by Nova's ID
        only.
    """
    for member in cluster.members:
        if member.project_id != cluster.project_id:
            continue
        found: dict[str, Any] = {
            'name': member.name,
            'hostname': member.hostname,
            'host': None,
            'switch': None,
            'rack': None,
        }
        if secret is None:
            if member.host_id:
                found['host'] = f'host-{member.host_id[:16]}'
        elif member.host:
            ids = opaque_ids.OpaqueIds(cluster.project_id, secret)
            found['host'] = ids.host(member.host)
            host = (cluster.hosts or {}).get(member.host)
            if host is not None:
                found['switch'] = ids.switch(host.switch)
                found['rack'] = ids.rack(host.rack)
        yield found


def _from_files(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the members of the clusters in files.

    :raises CommandError: a file is not what a member reads.
    """
    for name in args.vendor_data:
        try:
            answer = json.loads(pathlib.Path(name).read_text())
            members = answer[args.vendor_data_target]['members']
            yield from (_checked(member) for member in members)
        except (
            ValueError,
            LookupError,
            TypeError,
            RecursionError,
        ) as error:
            raise base.CommandError(
                f'{name}: no vendordata of a member of a virtual cluster '
                f'under "{args.vendor_data_target}": '
                f'{type(error).__name__}: {error}'
            ) from None


def _checked(member: Mapping[str, Any]) -> dict[str, Any]:
    """Return a member, all of whose places are IDs.

    :raises ValueError: one is not: it could break the file that is printed.
    """
    for tier in ('host', 'switch', 'rack'):
        place = member[tier]
        if place is not None and not opaque_ids.is_id(place):
            raise ValueError(f'{place!r} is no ID of a {tier}')
    # Files of earlier releases have none.
    hostname = member.get('hostname')
    return {
        'name': openstack.text(member['name']),
        'hostname': None if hostname is None else openstack.text(hostname),
        'host': member['host'],
        'switch': member['switch'],
        'rack': member['rack'],
    }


def _secret(files: list[str] | None) -> bytes:
    """Return the secret of the IDs.

    :raises CommandError: the configuration has none, or a wrong one.
    """
    conf = cfg.ConfigOpts()
    nova_conf.register_opts(conf)
    vendordata_conf.register_opts(conf)
    conf([], project='nova-vhpc', default_config_files=files or None)
    try:
        return opaque_ids.secret(conf)
    except opaque_ids.NoSecretError as error:
        raise base.CommandError(f'{UNKEYED} ({error})') from None
    except ValueError as error:
        raise base.CommandError(str(error)) from None
