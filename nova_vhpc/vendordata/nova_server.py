# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What Nova's detail view says of a server, for :mod:`.nova`."""

import contextlib
import ipaddress
from collections.abc import Mapping
from typing import Any

from nova_vhpc.clients import openstack
from nova_vhpc.flavor import extra_specs
from nova_vhpc.vendordata import model, nic_order, opaque_ids

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
    order: nic_order.Order = (),
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
            nics.setdefault(entry.get(nic_order.MAC, ''), []).append(
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
        uplink_nic=specs.uplink_nic,
        running=is_running(server),
        status=openstack.text(server.get('status') or 'UNKNOWN'),
        hostname=hostname_of(server),
    )
