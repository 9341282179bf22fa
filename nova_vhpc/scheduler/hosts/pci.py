# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""PCI devices that a member requests, and the free ones of a host."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from nova.pci import utils as pci_utils

from nova_vhpc.scheduler.planner.model import NO_LIMIT


def requested(spec_obj: Any) -> list[Any]:
    """Return Nova's PCI requests of one server, by alias and by port."""
    requests = spec_obj.pci_requests if 'pci_requests' in spec_obj else None
    return list(requests.requests) if requests else []


def device_count(requests: Iterable[Any]) -> int:
    """Return the number of PCI devices that one server requests."""
    return sum(int(request.count) for request in requests)


def members(state: Any, requests: Iterable[Any]) -> int:
    """Return how many members the host's free PCI devices serve."""
    count = NO_LIMIT
    for share in _shares(state, list(requests)):
        count = min(count, share.free // (share.needed or 1))
    return count


def shortage(state: Any, requests: Iterable[Any]) -> str | None:
    """Return why a host's free PCI devices do not suffice, or None."""
    if state.pci_stats is None:
        return 'its nova-compute has reported no PCI devices yet'
    for share in _shares(state, list(requests)):
        if share.free < share.needed:
            return (
                f'it has {share.free} free PCI device(s) for '
                f'{share.name}, {share.needed} are needed'
            )
    return None


def supported(
    state: Any, requests: list[Any], candidate: Mapping[str, Any]
) -> bool:
    """Return whether an allocation candidate allows the PCI requests."""
    return bool(
        state.pci_stats.support_requests(
            requests, provider_mapping=candidate['mappings']
        )
    )


class _Share(NamedTuple):
    """Devices that serve a set of requests, and no other requests.

    :ivar name: name of the requests, for operators.
    :ivar free: number of free devices.
    :ivar needed: number of devices that one server requests.
    """

    name: str
    free: int
    needed: int


def _shares(state: Any, requests: Sequence[Any]) -> Iterator[_Share]:
    """Yield the devices that serve the requests, and how many are needed.

    Requests that the same devices serve, such as two ports on one physical
    network, count together.
    """
    if not requests:
        return
    pools = state.pci_stats.pools if state.pci_stats is not None else ()
    served_by = [_pools(state, request) for request in requests]
    sets = dict.fromkeys([*served_by, frozenset[int]().union(*served_by)])
    for devices in sets:
        within = [
            request
            for request, serving in zip(requests, served_by, strict=True)
            if serving == devices or (serving and serving < devices)
        ]
        yield _Share(
            ' and '.join(dict.fromkeys(map(_named, within))),
            sum(int(pools[number]['count']) for number in devices),
            sum(int(request.count) for request in within),
        )


def _pools(state: Any, request: Any) -> frozenset[int]:
    """Return the positions of the device pools that serve a request."""
    if state.pci_stats is None:
        return frozenset()
    ignored = getattr(state.pci_stats, 'ignored_spec_tags', ())
    specs = [
        {key: tag for key, tag in spec.items() if key not in ignored}
        for spec in request.spec
    ]
    return frozenset(
        number
        for number, pool in enumerate(state.pci_stats.pools)
        if pci_utils.pci_device_prop_match(pool, specs)
    )


def _named(request: Any) -> str:
    if request.alias_name:
        return f'alias {request.alias_name}'
    for spec in request.spec:
        if 'physical_network' in spec:
            return f'a port on physical network {spec["physical_network"]}'
    return 'a port'
