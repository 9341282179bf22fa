# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Read from Nova, Neutron and Placement what the upgrade checks judge."""

from collections.abc import Mapping, Sequence
from typing import Any

from keystoneauth1 import adapter
from keystoneauth1 import exceptions as ks_exceptions

from nova_vhpc.clients import neutron
from nova_vhpc.topology import model, neutron_segments

_FLAVORS_VERSION = '2.61'
"""First microversion of Nova whose list of flavors has extra specs."""

_PLACEMENT_VERSION = '1.39'

Summaries = Mapping[str, Mapping[str, Any]]
"""Provider summaries of Placement, by UUID of the provider."""


def flavors(client: adapter.Adapter) -> dict[str, dict[str, str]]:
    """Return the extra specs of all flavors, by name."""
    found = {}
    params = {'is_public': 'None'}
    # Nova answers [api]max_limit flavors at a time.
    while page := client.get(
        '/flavors/detail', params=params, microversion=_FLAVORS_VERSION
    ).json()['flavors']:
        found.update({one['name']: one['extra_specs'] for one in page})
        params['marker'] = page[-1]['id']
    return found


def network_problems(client: adapter.Adapter) -> list[str]:
    """Return a sentence for each network whose packets go astray."""

    def read(path: str) -> Any:
        return neutron.get(client, path)

    return neutron_segments.problems(
        neutron.pages(read, neutron_segments.NETWORKS, 'networks'),
        neutron_segments.mappings(
            neutron.pages(read, neutron_segments.AGENTS, 'agents')
        ),
    )


def providers(
    client: adapter.Adapter, query: str, name: str
) -> list[dict[str, Any]]:
    """Return the resource providers with a trait or resource class of ours.

    Placement refuses an unknown name. The first agent that publishes creates
    it, so until then there are no such providers.

    :param query: query string for ``/resource_providers``.
    :param name: name of the trait or resource class.
    """
    try:
        found: list[dict[str, Any]] = client.get(
            f'/resource_providers?{query}', microversion=_PLACEMENT_VERSION
        ).json()['resource_providers']
    except ks_exceptions.BadRequest as error:
        # keystoneauth leaves Placement's message in the response.
        text = str(error)
        if error.response is not None:
            text += error.response.text
        if 'No such' not in text or name not in text:
            raise
        return []
    return found


def summaries(client: adapter.Adapter) -> Summaries:
    """Return the providers of all hosts that published, by one request.

    As the filter's bulk read: where Placement limits its answers, hosts are
    missing.
    """
    found: Summaries = client.get(
        f'/allocation_candidates?resources={model.STAMP}:1',
        microversion=_PLACEMENT_VERSION,
    ).json()['provider_summaries']
    return found


def stamps(
    markers: Sequence[Mapping[str, Any]], found: Summaries
) -> dict[str, int]:
    """Return the stamps of marker providers by host."""
    return {
        marker['name'].removesuffix(':vhpc'): found[marker['uuid']][
            'resources'
        ][model.STAMP]['capacity']
        for marker in markers
        if marker['uuid'] in found
    }


def unseen_hosts(client: adapter.Adapter, found: Summaries, limit: int) -> int:
    """Return how many hosts with free uplinks a limited answer leaves out.

    Placement is asked only if there are more free uplinks than the limit.

    :param limit: ``[scheduler] max_placement_results``.
    """
    free = []
    for summary in found.values():
        slots = summary['resources'].get(model.UPLINK)
        if slots and slots['capacity'] > slots['used']:
            free.append(summary['root_provider_uuid'])
    if len(free) <= limit:
        return 0
    candidates = client.get(
        f'/allocation_candidates?resources{model.RESOURCE_GROUP}='
        f'{model.UPLINK}:1&limit={limit}',
        microversion=_PLACEMENT_VERSION,
    ).json()['allocation_requests']
    seen = {
        found[uuid]['root_provider_uuid']
        for candidate in candidates
        for uuid in candidate['allocations']
        if uuid in found
    }
    return len(set(free) - seen)
