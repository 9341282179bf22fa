# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The order in which a guest has its NICs.

Nova groups a server's addresses by the name of the network: networks in the
order of their first NIC, NICs in order within each. For a guest with NICs A, B
and C on the networks 1, 2 and 1 it returns A, C, B. The list of ports is in
Neutron's order, which is undefined. The diagnostics list the NICs of the
running domain in the domain's order, by which the agent binds uplinks.
"""

import concurrent.futures
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

from keystoneauth1 import adapter
from keystoneauth1 import exceptions as ks_exceptions
from oslo_log import log as logging

LOG = logging.getLogger(__name__)

MAC = 'OS-EXT-IPS-MAC:mac_addr'

_MICROVERSION = '2.48'
# nova-api asks the compute host. Neither a host that does not answer nor a
# cluster of many members may delay the answer to the guest: Nova waits 5 s.
_TIMEOUT_S = 2.0
_MAX_THREADS = 8

# Applies to a refusal, too. NICs may be plugged while the guest runs.
_TTL_S = 60.0

_KEPT_S = 3600.0
"""Time after its expiry for which an order is kept, in seconds.

It goes on if the diagnostics cannot be read then: another order would give the
member another address.
"""

Order = tuple[str, ...]
"""MAC addresses in the guest's order; empty if the order is unknown."""


def is_unambiguous(addresses: Mapping[str, list[dict[str, Any]]]) -> bool:
    """Return whether the addresses of a server imply the order of its NICs.

    They do unless a network with several NICs is followed by another one.

    :param addresses: addresses of a server as Nova's API returns them.
    """
    groups = [
        {entry.get(MAC) for entry in entries} for entries in addresses.values()
    ]
    return all(len(group) <= 1 for group in groups[:-1])


class NicOrders:
    """Reads the orders that addresses do not imply, and caches them.

    :param client: client of the compute service, whose user may read
        ``os-server-diagnostics``.
    """

    def __init__(self, client: adapter.Adapter) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._cached: dict[str, tuple[float, Order]] = {}
        self._has_warned = False

    def find(self, servers: Iterable[Mapping[str, Any]]) -> dict[str, Order]:
        """Return by UUID the orders of servers whose addresses are ambiguous.

        :param servers: servers from Nova's detail view that run: others have
            no diagnostics.
        """
        uuids = [
            server['id']
            for server in servers
            if not is_unambiguous(server.get('addresses') or {})
        ]
        if not uuids:
            return {}
        now = time.monotonic()
        with self._lock:
            self._cached = {
                uuid: entry
                for uuid, entry in self._cached.items()
                if entry[0] > now - _KEPT_S
            }
            orders = dict(self._cached)
        missing = [
            uuid
            for uuid in uuids
            if uuid not in orders or orders[uuid][0] <= now
        ]
        if missing:
            with concurrent.futures.ThreadPoolExecutor(_MAX_THREADS) as pool:
                read_orders = list(pool.map(self._read, missing))
            expiry = time.monotonic() + _TTL_S
            entries = {
                uuid: (expiry, order or orders.get(uuid, (0.0, ()))[1])
                for uuid, order in zip(missing, read_orders, strict=True)
            }
            orders |= entries
            with self._lock:
                self._cached |= entries
        return {uuid: orders[uuid][1] for uuid in uuids}

    def _read(self, uuid: str) -> Order:
        try:
            response = self._client.get(
                f'/servers/{uuid}/diagnostics',
                microversion=_MICROVERSION,
                raise_exc=False,
                timeout=_TIMEOUT_S,
            )
            if response.status_code == 200:
                return tuple(
                    (nic['mac_address'] or '').lower()
                    for nic in response.json()['nic_details']
                )
            reason = f'{response.status_code}: {response.text[:200]}'
        except ks_exceptions.ClientException as error:
            reason = str(error)
        if not self._has_warned:
            self._has_warned = True
            LOG.warning(
                'Nova does not return the diagnostics of server %s, so its '
                'NICs on the same network are assumed to follow each other. '
                'Check that the policy os_compute_api:os-server-diagnostics '
                'allows the user of [vhpc_nova] to read them. Further '
                'failures are not logged. The error was: %s',
                uuid,
                reason,
            )
        return ()
