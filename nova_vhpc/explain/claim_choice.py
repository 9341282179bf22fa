# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Choose what a running server claims again on the host that it is on.

Placement is asked as nova-scheduler asks it for a new server, on one host. Of
its candidates, one counts whose uplinks serve the networks of the server.
"""

import urllib.parse
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from nova_vhpc.clients import openstack
from nova_vhpc.explain import cloud
from nova_vhpc.explain.cloud import placement
from nova_vhpc.explain.request import Flavor
from nova_vhpc.flavor import cpu_policy, request_groups
from nova_vhpc.scheduler.hosts import network_fit, requirements
from nova_vhpc.scheduler.hosts.networks import Networks
from nova_vhpc.scheduler.sources.snapshot import HostUplinks
from nova_vhpc.topology import model

Allocations = Mapping[str, Mapping[str, Any]]
"""Amounts by UUID of the resource provider, as Placement takes them."""

_MOST_CANDIDATES = 1000

_TUNNELS = frozenset({'geneve', 'vxlan', 'gre'})

_OTHER_SPECS = ('accel:device_profile', 'hw:pmem', request_groups.ALIAS)
"""Extra specs for which Nova allocates more than is asked for here."""


class UndecidedError(Exception):
    """It is not certain what to claim; the text says why."""


class Place(NamedTuple):
    """The host of a server.

    :ivar root: UUID of its root provider.
    :ivar topology: uplinks that its agent published, None if none were.
    :ivar encap_ips: whether any host of the cloud has uplinks with encap IPs.
    """

    root: str
    topology: HostUplinks | None
    encap_ips: bool


def choose(
    connection: Any,
    server: Mapping[str, Any],
    place: Place,
    missing: int,
    paths: Collection[str] | None,
) -> Allocations:
    """Return what Placement offers for what a server lacks on its host.

    :param connection: openstacksdk connection of an administrator.
    :param server: the server, as Nova's API shows it.
    :param missing: number of claims on uplinks that it lacks.
    :param paths: paths of the uplinks that it has claimed; None if it has no
        allocations at all.
    :raises UndecidedError: it is not certain what that is.
    :raises CloudError: the cloud cannot be asked, or refuses.
    """
    flavor = _flavor(server)
    specs = flavor.extra_specs
    others = [name for name in specs if name.startswith(_OTHER_SPECS)]
    if paths is None and others:
        raise UndecidedError(f'What {others[0]} takes is not known here')
    networks = _networks(connection, server['id'], paths is None)
    if networks is not None:
        networks = networks.with_encap_ips(place.encap_ips)
    wanted = requirements.of_flavor(specs, 1, networks=networks)
    if place.topology is None or wanted.rule is None:
        raise UndecidedError('No agent has published uplinks of its host')
    fit = network_fit.fit(
        wanted.rule,
        place.topology.uplinks,
        wanted.specs.min_link_mbps,
        wanted.networks,
    )
    if fit.reason is not None:
        raise UndecidedError(f'Its host does not serve it: {fit.reason}')
    if paths is not None:
        flavor = Flavor(0, 0, _groups(specs, missing))
    path_of = {uplink.uuid: uplink.path for uplink in fit.uplinks}
    for candidate in _offered(connection, flavor, place.root):
        found: Allocations = candidate['allocations']
        claimed = model.uplinks_in(found)
        new = [path_of[uuid] for uuid in claimed if uuid in path_of]
        if (
            len(new) == len(claimed) == missing
            and len({*new, *(paths or ())}) >= wanted.rule.bridges
        ):
            return {
                uuid: {'resources': allocation['resources']}
                for uuid, allocation in found.items()
            }
    raise UndecidedError(
        'Placement has not enough CPUs, RAM, disk or uplinks left for it on '
        f'its host ({network_fit.taken(fit.uplinks)})'
    )


def _offered(connection: Any, flavor: Flavor, root: str) -> Iterator[Any]:
    """Yield the allocation candidates for a flavor on one host."""
    translations = [True]
    if cpu_policy.falls_back(flavor.extra_specs):
        translations.append(False)
    for translated in translations:
        path = placement.query(flavor, translated, limit=_MOST_CANDIDATES)
        query = urllib.parse.urlsplit(path).query
        path += ''.join(
            f'&in_tree{name.removeprefix("resources")}={root}'
            for name, _ in urllib.parse.parse_qsl(query)
            if name.startswith('resources')
        )
        body = openstack.get(connection.placement, path, placement.VERSION)
        yield from body['allocation_requests']


def _networks(connection: Any, server: str, whole: bool) -> Networks | None:
    """Return the networks of a server, None if it has none.

    :param whole: whether the server has lost all of its allocations.
    :raises UndecidedError: Neutron does not say, or a port of the server holds
        bandwidth that is not allocated here.
    """
    attached = openstack.get(
        connection.compute, f'/servers/{server}/os-interface', '2.69'
    )['interfaceAttachments']
    if not attached:
        return None
    try:
        with openstack.asked():
            neutron = connection.network
            ports = list(
                cloud.pages(
                    neutron, f'/ports?device_id={server}', 'ports', None
                )
            )
            networks = [
                openstack.get(neutron, f'/networks/{uuid}', None)['network']
                for uuid in {port['network_id'] for port in ports}
            ]
    except openstack.CloudError as error:
        reason = f'Neutron does not tell its ports ({error})'
        raise UndecidedError(reason) from error
    if whole and any(port.get('resource_request') for port in ports):
        raise UndecidedError('Its ports hold bandwidth, too')
    segments = [s for n in networks for s in n.get('segments') or [n]]
    if not segments or any(
        'provider:network_type' not in segment for segment in segments
    ):
        raise UndecidedError('Neutron does not tell its physical networks')
    physnets = {s.get('provider:physical_network') for s in segments}
    return Networks(
        frozenset(map(model.physnet_trait, filter(None, physnets))),
        any(s['provider:network_type'] in _TUNNELS for s in segments),
    )


def _flavor(server: Mapping[str, Any]) -> Flavor:
    """Return the flavor of a server, as Nova allocates for it."""
    values = server['flavor']
    # The root disk of a server that boots from a volume is on no host.
    root_gb = values['disk'] if server.get('image') else 0
    swap_gb = -(-int(values['swap'] or 0) // 1024)
    return Flavor(
        vcpus=values['vcpus'],
        ram_mb=values['ram'],
        disk_gb=root_gb + values['ephemeral'] + swap_gb,
        extra_specs=values['extra_specs'],
    )


def _groups(specs: Mapping[str, str], number: int) -> dict[str, str]:
    """Return the last request groups for uplinks, so many."""
    suffixes = sorted(
        name.removeprefix('resources').partition(':')[0]
        for name in specs
        if name.startswith('resources') and name.endswith(':' + model.UPLINK)
    )[-number:]
    return {
        name: value
        for name, value in specs.items()
        if name == request_groups.GROUP_POLICY
        or any(
            name.startswith((f'resources{suffix}:', f'trait{suffix}:'))
            for suffix in suffixes
        )
    }
