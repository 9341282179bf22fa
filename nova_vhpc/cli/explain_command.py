# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``openstack vhpc explain``: where members would be placed, and why.

The same as ``nova-vhpc-explain``, with the login of the ``openstack`` client.
"""

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from osc_lib import exceptions
from osc_lib.command import command
from rich.console import Console

from nova_vhpc.cli import base, cluster_limits, cluster_reader
from nova_vhpc.cli import explain as program
from nova_vhpc.clients import openstack
from nova_vhpc.explain import model

_WIDTH = 160
"""Width of the sentences on standard error, in characters."""


class Explain(base.Command, command.Lister):
    """Explain where members would be placed, host by host, and why.

    The plan for the whole cluster is told of on standard error. The exit code
    is 0 if there is one, 3 if there is none, 1 if the request could not be
    explained.
    """

    _planned = True

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the command line."""
        parser = super().get_parser(prog_name)
        program.add_arguments(parser)
        return parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Explain the request and return the exit code."""
        status = super().run(parsed_args)
        return status or (0 if self._planned else program.NO_PLAN)

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Return a row for each host."""
        try:
            program.check(parsed_args)
        except ValueError as error:
            raise exceptions.CommandError(str(error)) from None
        try:
            answer = program.explained(parsed_args, self.connection)
        except openstack.RefusedError:
            if parsed_args.group:
                self._tell_of(parsed_args.group)
            raise exceptions.CommandError(program.REFUSED) from None
        self._planned = answer.placement.infeasible_reason is None
        console = Console(file=self.app.stderr, width=_WIDTH)
        program.print_findings(console, answer)
        names = (
            'Host',
            'Plan',
            'Runs',
            'Weight',
            'Room',
            'Link Mbps',
            'Switch',
            'Rack',
            'Filter',
        )
        return names, [_row(host) for host in answer.hosts]

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
        program.words(host),
    )
