# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``nova-vhpc-bench scheduler``: filter and weigher compared to Nova's.

The peer is Nova's ``ServerGroupAntiAffinityFilter`` with
``ServerGroupSoftAffinityWeigher``. Both sides run in turns on the same host
states in one process. Members are placed one after another, as Nova's
scheduler manager does. Timed are the filter and the weigher alone, ours with
the planner and the building of the session, in CPU time of the thread, which
other load on the machine hardly changes. The ``nova_path`` figures include
Nova's own handlers.
"""

import argparse
import gc
import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from nova_vhpc_lab.bench.common import cli_types, outputs

HELP = "Measure filter and weigher per host, beside Nova's own."

POLICIES = ('anti-affinity', 'soft-affinity')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the subcommand."""
    for name, default, about in (
        ('--hosts', 1000, 'number of hosts in the cloud'),
        ('--members', 64, 'number of servers in the virtual cluster'),
        ('--rounds', 3, 'times that all are placed; the figures are medians'),
    ):
        cli_types.add_integer(parser, name, default, about)
    parser.add_argument(
        '--refresh',
        action='store_true',
        help='also read all uplinks from a real Placement on SQLite, '
        'in process (at 10,000 hosts this takes a minute to set up)',
    )
    outputs.add_json(parser)


class _Side:
    """A filter and a weigher that are timed together."""

    def __init__(self, name: str, filter_: Any, weigher: Any) -> None:
        self.name = name
        self.filter = filter_
        self.weigher = weigher

    def place(self, hosts: list[Any], spec: Any) -> float:
        """Place all members without Nova's handlers.

        :returns: CPU time in seconds.
        """
        from nova.scheduler import weights

        took_s = 0.0
        for uuid in list(spec.instance_group.members):
            spec.instance_uuid = uuid
            began_s = time.thread_time()
            hosts = list(self.filter.filter_all(hosts, spec))
            took_s += time.thread_time() - began_s
            weighed = [weights.WeighedHost(host, 0.0) for host in hosts]
            began_s = time.thread_time()
            raw = self.weigher.weigh_objects(weighed, spec)
            factors = [self.weigher.weight_multiplier(host) for host in hosts]
            took_s += time.thread_time() - began_s
            # Nova takes the first host of those with the greatest weight.
            best = max(range(len(hosts)), key=lambda i: raw[i] * factors[i])
            _consume(hosts[best], spec, uuid)
        return took_s

    def place_by_handlers(self, hosts: list[Any], spec: Any) -> float:
        """Place all members by Nova's filter and weight handlers.

        :returns: CPU time in seconds.
        """
        from nova.scheduler import filters, weights

        filter_handler = filters.HostFilterHandler()
        weight_handler = weights.HostWeightHandler()
        took_s = 0.0
        for index, uuid in enumerate(list(spec.instance_group.members)):
            spec.instance_uuid = uuid
            began_s = time.thread_time()
            hosts = filter_handler.get_filtered_objects(
                [self.filter], hosts, spec, index
            )
            weighed = weight_handler.get_weighed_objects(
                [self.weigher], hosts, spec
            )
            took_s += time.thread_time() - began_s
            hosts = [item.obj for item in weighed]
            _consume(hosts[0], spec, uuid)
        return took_s


def _consume(state: Any, spec: Any, uuid: str) -> None:
    """Update a host state as the scheduler manager does after a claim."""
    if state.allocation_candidates:
        state.allocation_candidates[0]
    state.consume_from_request(spec)
    spec.instance_group.hosts.append(state.host)
    state.instances[uuid] = None


def measure(hosts: int, members: int, rounds: int) -> dict[str, Any]:
    """Measure both sides in turns.

    :param hosts: number of hosts.
    :param members: number of servers in the virtual cluster.
    :param rounds: number of runs; the figures are medians.
    :returns: figures by their JSON keys.
    """
    from nova import conf
    from nova.scheduler.filters import affinity_filter
    from nova.scheduler.weights import affinity

    from nova_vhpc.scheduler import filters, weights
    from nova_vhpc.scheduler.sources import server_groups, uplink_cache
    from nova_vhpc_lab.bench.scheduler import world

    ours = _Side(
        'ours', filters.VirtualClusterFilter(), weights.VirtualClusterWeigher()
    )
    peer = _Side(
        'peer',
        affinity_filter.ServerGroupAntiAffinityFilter(),
        affinity.ServerGroupSoftAffinityWeigher(),
    )
    conf.CONF.set_override('topology_max_age', 0, 'vhpc_scheduler')
    body = world.bulk_body(hosts)
    names = {'resource_providers': world.names(hosts)}
    uplink_cache.reset()
    cache = uplink_cache.UplinkCache(
        conf.CONF,
        lambda path, _version: body if 'candidates' in path else names,
    )
    uplink_cache.install(cache)
    cache.snapshot()
    server_groups.install(server_groups.ServerGroups(world.group_of_servers))
    cloud = world.World(hosts)
    figures: dict[str, Any] = {
        'hosts': hosts,
        'members': members,
        'snapshot_parse_s': round(cache.read_s, 4),
        'policies': {},
    }

    def medians(
        place: Callable[[_Side, list[Any], Any], float],
        rounds: int,
        policy: str,
        specs: dict[str, str],
    ) -> tuple[float, float]:
        """Return the medians of both sides, in us per host, ours first."""
        times_s: dict[_Side, list[float]] = {ours: [], peer: []}
        for _ in range(rounds):
            for side in times_s:
                states = cloud.reset()
                gc.collect()
                spec = world.request(members, policy, specs)
                times_s[side].append(place(side, states, spec))
        our_median_s, peer_median_s = map(statistics.median, times_s.values())
        return our_median_s * per_host, peer_median_s * per_host

    per_host = 1e6 / (hosts * members)
    for policy in POLICIES:
        if policy == 'anti-affinity' and members > hosts:
            continue
        cluster = medians(_Side.place, rounds, policy, world.VHPC_SPECS)
        nova_path = medians(
            _Side.place_by_handlers, 1, policy, world.VHPC_SPECS
        )
        unrelated = medians(_Side.place, rounds, policy, world.PLAIN_SPECS)
        policy_figures = {
            'ours_us_per_host': cluster[0],
            'peer_us_per_host': cluster[1],
            'ratio': cluster[0] / cluster[1],
            'unrelated_us_per_host': unrelated[0],
            'unrelated_ratio': unrelated[0] / unrelated[1],
            'nova_path_ours_us_per_host': nova_path[0],
            'nova_path_peer_us_per_host': nova_path[1],
            'nova_path_ratio': nova_path[0] / nova_path[1],
        }
        figures['policies'][policy] = {
            key: round(value, 4) for key, value in policy_figures.items()
        }
    cache.stop()
    server_groups.reset()
    uplink_cache.reset()
    worst = max(
        figures['policies'].values(), key=lambda policy: policy['ratio']
    )
    for key in ('ours_us_per_host', 'peer_us_per_host', 'ratio'):
        figures[key] = worst[key]
    figures['unrelated_ratio'] = max(
        policy['unrelated_ratio'] for policy in figures['policies'].values()
    )
    return figures


def run(args: argparse.Namespace) -> int:
    """Measure, print, and write the JSON file.

    :returns: 0; 1 if a required package is not installed; 2 if the members
        do not fit onto the hosts.
    :raises OutputError: if the JSON file cannot be written.
    """
    outputs.check(args.json)
    try:
        import nova.conf
        import nova.objects

        if args.refresh:
            importlib.import_module('placement.direct')
    except ImportError as error:
        print(
            'nova-vhpc-bench scheduler: nova must be installed, and '
            f'openstack-placement for --refresh: {error}',
            file=sys.stderr,
        )
        return 1
    from nova_vhpc_lab.bench.scheduler import world

    needed = -(-args.members // world.UPLINKS)
    if args.hosts < needed:
        print(
            f'nova-vhpc-bench scheduler: {args.members} members need {needed} '
            f'hosts at least, because each host has {world.UPLINKS} uplinks; '
            f'--hosts is {args.hosts}',
            file=sys.stderr,
        )
        return 2
    nova.objects.register_all()
    # No configuration file: /etc/nova of this machine must not matter.
    nova.conf.CONF([], default_config_files=[], project='nova')
    figures = measure(args.hosts, args.members, args.rounds)
    if args.refresh:
        from nova_vhpc_lab.bench.scheduler import placement_read

        figures['refresh'] = placement_read.measure(args.hosts)
    for key, value in figures.items():
        print(f'{key:20} {json.dumps(value)}')
    outputs.write_json(args.json, figures)
    return 0
