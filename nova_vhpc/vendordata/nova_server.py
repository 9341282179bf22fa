# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What Nova says of one server: whether it runs, and its NICs in order."""

import concurrent.futures
import contextlib
import ipaddress
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

from keystoneauth1 import adapter
from keystoneauth1 import exceptions as ks_exceptions
from oslo_log import log as logging

from nova_vhpc.clients import openstack
from nova_vhpc.flavor import extra_specs
from nova_vhpc.vendordata import model, opaque_ids

LOG = logging.getLogger(__name__)

_RUNNING = ('ACTIVE', 'MIGRATING', 'PASSWORD', 'REBOOT', 'VERIFY_RESIZE')
"""Statuses of servers that may run.

One in ``ERROR`` may run, too, if an action on it has failed. Nobody can rely
on it: Nova refuses most actions on it, and its disks or ports may be gone.
"""

_ENDING = (
    'deleting',
    'soft-deleting',
    'powering-off',
    'pausing',
    'suspending',
    'rescuing',
    'shelving',
    'shelving_image_pending_upload',
    'shelving_image_uploading',
    'shelving_offloading',
)
"""Tasks at whose end a server does not run; its status is still the old."""

_POWERED_ON = 1
"""Nova's power state of a VM that runs."""

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


def opted_in(server: Mapping[str, Any]) -> bool:
    """Return whether a server of a group is one of its virtual cluster.

    Assumed if Nova does not return the flavor's extra specs, because of its
    policy or because the server's cell is down.
    """
    specs = (server.get('flavor') or {}).get('extra_specs')
    return specs is None or extra_specs.requested(specs)


def is_running(server: Mapping[str, Any]) -> bool:
    """Return whether a server runs its own system, and will go on.

    As far as Nova knows. One that is being deleted, shelved or stopped does
    not count, although it still answers. One that is rescued runs the rescue
    image. One on a host that was forced down does not run: operators force
    down what they have fenced.
    """
    return (
        server.get('status') in _RUNNING
        and server.get('OS-EXT-STS:task_state') not in _ENDING
        and server.get('OS-EXT-STS:power_state', _POWERED_ON) == _POWERED_ON
        and server.get('host_status') != 'DOWN'
    )


def hostname_of(server: Mapping[str, Any]) -> str | None:
    """Return the name that Nova tells the guest; None if Nova hides it."""
    hostname = server.get('OS-EXT-SRV-ATTR:hostname')
    return openstack.text(hostname) if hostname else None


def expected_members(server: Mapping[str, Any]) -> int:
    """Return how many members a server's request or flavor speaks of.

    :returns: 0 if neither says; a wrong hint says nothing, as in the
        scheduler.
    """
    hint = (server.get('scheduler_hints') or {}).get(extra_specs.MEMBERS_HINT)
    if isinstance(hint, list):
        hint = hint[0] if hint else None
    if hint is not None:
        with contextlib.suppress(ValueError):
            return int(extra_specs.BY_NAME['members'].parse(hint))
    flavor = server.get('flavor') or {}
    return extra_specs.parse(flavor.get('extra_specs') or {}).members or 0


def member_of(
    server: Mapping[str, Any],
    ids: opaque_ids.OpaqueIds,
    tiers: Mapping[str, tuple[str | None, str | None]],
    order: Order = (),
) -> model.Member:
    """Return the member for a server of Nova's detail view.

    NICs on the same network are distinguished by their MAC addresses. Of a
    server in a cell that is down, Nova returns only the ID: its cluster is
    not complete meanwhile.

    :param ids: IDs for the project of the server.
    :param tiers: by host name, names of the host's switch and rack.
    :param order: order of the NICs, if the addresses do not imply it.
    """
    nics: dict[str, list[model.Address]] = {}
    for addresses in server.get('addresses', {}).values():
        for entry in addresses:
            if entry.get('OS-EXT-IPS:type', 'fixed') != 'fixed':
                continue
            nics.setdefault(entry.get(MAC, ''), []).append(
                ipaddress.ip_address(entry['addr'])
            )
    macs = list(nics)
    # An order that lacks NICs (such as a whole PCI function) is not used,
    # because these could be anywhere.
    if {mac.lower() for mac in macs} <= set(order):
        macs.sort(key=lambda mac: order.index(mac.lower()))
    # Nova's hostId is a plain hash of project and name, so names can be
    # guessed and tried; it serves where Nova hides the name.
    host = server.get('OS-EXT-SRV-ATTR:host') or server.get('hostId')
    switch, rack = tiers.get(host or '', (None, None))
    flavor = server.get('flavor') or {}
    specs = extra_specs.parse(flavor.get('extra_specs') or {})
    return model.Member(
        uuid=openstack.text(server['id']),
        name=openstack.text(server.get('name', server['id'])),
        vcpus=openstack.count(flavor.get('vcpus', 0)),
        host=ids.host(openstack.text(host)) if host else None,
        switch=ids.switch(switch),
        rack=ids.rack(rack),
        nics=tuple(model.Nic(mac, tuple(nics[mac])) for mac in macs),
        network=specs.network,
        paradigm=specs.paradigm,
        wait=specs.wait,
        uplink_nic=specs.uplink_nic,
        running=is_running(server),
        status=openstack.text(server.get('status') or 'UNKNOWN'),
        hostname=hostname_of(server),
    )


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

    Nova groups a server's addresses by the name of the network: networks in
    the order of their first NIC, NICs in order within each. For a guest with
    NICs A, B and C on the networks 1, 2 and 1 it returns A, C, B. The list of
    ports is in Neutron's order, which is undefined. The diagnostics list the
    NICs of the running domain in the domain's order, by which the agent binds
    uplinks.

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
