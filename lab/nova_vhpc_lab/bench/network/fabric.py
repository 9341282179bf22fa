# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Make the links of a cluster: guests are network namespaces.

Uplinks are shaped in both directions, so that they, and not this machine's
CPUs, limit what passes.
"""

from collections.abc import Iterable, Iterator

from nova_vhpc_lab.bench.network import layout as layouts
from nova_vhpc_lab.testbed import namespaces


def shaping(device: str, link_mbps: float) -> str:
    """Return the command of ``tc`` that limits what a link sends.

    Packets that the kernel would segment later are segmented here, so the
    burst need not hold them.
    """
    return (
        f'qdisc add dev {device} root tbf rate {link_mbps * 1e6:.0f}bit '
        'burst 16kb latency 50ms'
    )


def links(layout: layouts.Layout) -> Iterator[str]:
    """Yield the commands of ``ip`` that make bridges, uplinks and NICs."""
    for bridge in (*layout.switches, *layout.bridges):
        yield f'link add {bridge} type bridge'
        yield f'link set {bridge} up'
    for uplink in layout.uplinks:
        port = f'{uplink.name}x'
        yield f'link add {uplink.name} type veth peer name {port}'
        yield f'link set {uplink.name} master {uplink.bridge} up'
        yield f'link set {port} master {layouts.switch(uplink.network)} up'
    for guest in layout.guests:
        for nic in guest.nics:
            bridge = nic.bridge or layouts.switch(nic.network)
            yield (
                f'link add {nic.outside} type veth '
                f'peer name {nic.name} netns {guest.name}'
            )
            yield f'link set {nic.outside} master {bridge} up'


def shaped_outside(layout: layouts.Layout, link_mbps: float) -> Iterator[str]:
    """Yield the commands of ``tc`` for uplinks and ports of the switches."""
    for uplink in layout.uplinks:
        yield shaping(uplink.name, link_mbps)
        yield shaping(f'{uplink.name}x', link_mbps)
    for guest in layout.guests:
        for nic in guest.nics:
            if nic.bridge is None:
                yield shaping(nic.outside, link_mbps)


def addresses(guest: layouts.Guest) -> Iterator[str]:
    """Yield the commands of ``ip`` in a guest's namespace."""
    for nic in guest.nics:
        yield f'address add {nic.address}/16 dev {nic.name}'
        # No link-local address: libraries would try it, too.
        yield f'link set {nic.name} addrgenmode none up'


def steer(
    world: namespaces.Namespaces, layout: layouts.Layout, cpus: Iterable[int]
) -> None:
    """Have packets received on some CPUs only, as by a host's own threads.

    What a bridge does with a packet, shaping included, is done where the
    bridge receives it.

    :raises LabError: the kernel has no receive packet steering.
    """
    script = (
        'for file in /sys/class/net/*/queues/rx-*/rps_cpus; do '
        'echo "$1" >"$file" || exit 1; done'
    )
    for name in (None, *(guest.name for guest in layout.guests)):
        world.run(('sh', '-c', script, 'sh', mask(cpus)), name)


def mask(cpus: Iterable[int]) -> str:
    """Return a set of CPUs as the kernel reads it: groups of 32 bits."""
    rest = sum(1 << cpu for cpu in set(cpus))
    groups: list[str] = []
    while rest or not groups:
        groups.insert(0, f'{rest & 0xFFFFFFFF:x}'.zfill(8))
        rest >>= 32
    return ','.join(groups)


def make(
    world: namespaces.Namespaces,
    layout: layouts.Layout,
    link_mbps: float,
) -> None:
    """Make all links of a cluster.

    :param world: namespaces of this cluster alone.
    :param link_mbps: speed of each uplink, in Mbit/s.
    :raises LabError: the kernel refuses a link or a queueing discipline.
    """
    for guest in layout.guests:
        world.add(guest.name)
    world.batch('ip', list(links(layout)))
    world.batch('tc', list(shaped_outside(layout, link_mbps)))
    for guest in layout.guests:
        world.batch('ip', list(addresses(guest)), guest.name)
        exported = [nic.name for nic in guest.nics if nic.bridge is None]
        if exported:
            shaped = [shaping(name, link_mbps) for name in exported]
            world.batch('tc', shaped, guest.name)
