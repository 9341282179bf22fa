# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""The scenario of the main job, for the demo and the functional tests.

It has a cloud with bridges, uplinks, images and flavors, a second host whose
uplinks are too slow, and the program ``nova-vhpc-agent``.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Self

from keystoneauth1 import adapter

from nova_vhpc.placement import publisher
from nova_vhpc.placement.client import PlacementClient
from nova_vhpc.topology import model
from nova_vhpc_lab.stack import (
    agents,
    client,
    environment,
    guests,
    host,
    outsider,
    realhosts,
)
from nova_vhpc_lab.testbed.patience import TooLongError

MEMBERS = 3
"""Members of the virtual cluster: more than a host has uplinks."""

SLOW_HOST = 'slow-node'
SLOW_MBPS = 1000

FLAVOR: Mapping[str, str] = {
    'vhpc:workload': 'parallel',
    'vhpc:paradigm': 'mpi',
    'vhpc:network': 'separate',
    'vhpc:min_link_mbps': '5000',
    'vhpc:max_overcommit': '4',
    'vhpc:spare_cpus': '0',
    f'resources_uplink:{model.UPLINK}': '1',
    f'trait_uplink:{model.TRAIT_SEPARATE}': 'required',
    'quota:cpu_period': '100000',
    'quota:cpu_quota': '20000',
}
"""Extra specs of a virtual cluster's members; see doc/source/admin.

The quotas of all guests leave more than half a CPU to the cloud's services,
even if the machine has only two CPUs.
"""

PLAIN_FLAVOR: Mapping[str, str] = {
    'quota:cpu_period': '100000',
    'quota:cpu_quota': '10000',
    'trait:COMPUTE_NET_VIF_MODEL_VIRTIO': 'required',
}
"""Extra specs of the server without ``vhpc:`` specs.

Only the host that runs guests has the trait. Without it, Nova would choose the
slow host, which has more free RAM once the members run.
"""

CIDR = '10.99.0.0/24'
"""Addresses of the tenant network."""

Servers = list[dict[str, Any]]


def without_quota(extra_specs: Mapping[str, str]) -> dict[str, str]:
    """Return extra specs without those of a CPU quota."""
    return {
        key: value
        for key, value in extra_specs.items()
        if key not in ('quota:cpu_period', 'quota:cpu_quota')
    }


class Scenario(agents.Agents):
    """A cloud with everything that the main job needs, and its agents.

    :param say: called with a line of text when a step of the start is done.
    :param hosts: number of hosts that run guests.
    :param last: environment of the last of these hosts.
    :ivar images: IDs of the images, by workload.
    """

    def __init__(
        self,
        say: Callable[[str], None] = lambda text: None,
        hosts: int = 2,
        last: environment.Environment = environment.HERE,
    ) -> None:
        super().__init__(
            realhosts.RealHosts((SLOW_HOST,), say, count=hosts, last=last)
        )
        self.images: dict[str, str] = {}
        self.networks: list[dict[str, str]] = []

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the cloud and create everything but flavors and servers."""
        self.cloud.start()
        self.add_images()
        self.publish_slow_host()
        self.make_network()

    def stop(self) -> None:
        """End and remove everything; may be called again."""
        self.halt()
        self.cloud.stop()

    def halt(self) -> None:
        """End everything, keep the logs; may be called again."""
        self.cloud.halt()

    def host_of(self, server: str) -> host.Host:
        """Return the host that a server runs on."""
        name = self.admin.server(server)['OS-EXT-SRV-ATTR:host']
        return next(each for each in self.hosts if each.name == name)

    def cputune(self, server: str) -> guests.Cputune:
        """Return the CPU settings of a server's domain."""
        return self.host_of(server).virsh.cputune(server)

    @property
    def admin(self) -> client.Client:
        """A REST client with the rights of an administrator."""
        return self.cloud.client('admin')

    @property
    def tenant(self) -> client.Client:
        """A REST client with the rights of a tenant."""
        return self.cloud.client('tenant')

    def add_images(self) -> None:
        """Add an image for each workload."""
        for workload in ('barrier', 'hog'):
            self.images[workload] = self.cloud.add_guest_image(workload)

    def publish_slow_host(self) -> None:
        """Publish slow uplinks, as the agent of the second host would."""
        topology = model.HostTopology(
            node=SLOW_HOST,
            bridges=tuple(
                model.Bridge(
                    name=f'br{n}',
                    kind=model.BridgeKind.SEPARATE,
                    uplinks=(
                        model.Uplink(
                            nic=f'eth{n}',
                            bridge=f'br{n}',
                            kind=model.BridgeKind.SEPARATE,
                            mbps=SLOW_MBPS,
                        ),
                    ),
                )
                for n in range(2)
            ),
        )
        adaptor = adapter.Adapter(self.admin.session, 'placement')
        publisher.Publisher(PlacementClient(adaptor), [SLOW_HOST]).publish(
            topology, model.stamp(time.time())
        )

    def make_network(self) -> None:
        """Create a tenant network, with DHCP, that all projects share."""
        admin = self.admin
        network = admin.request(
            'network',
            'POST',
            '/v2.0/networks',
            {'network': {'name': 'fabric', 'shared': True}},
        )['network']['id']
        subnet = {
            'name': 'fabric',
            'network_id': network,
            'ip_version': 4,
            'cidr': CIDR,
        }
        admin.request('network', 'POST', '/v2.0/subnets', {'subnet': subnet})
        self.networks = [{'uuid': network}]

    def boot_cluster(
        self,
        name: str,
        group: str,
        count: int = MEMBERS,
        flavor: str = 'vhpc',
    ) -> Servers:
        """Create the members of a virtual cluster with one request."""
        return self.tenant.boot(
            name,
            flavor,
            self.images['barrier'],
            count,
            group,
            networks=self.networks,
        )

    def console(self, server: str) -> guests.Console:
        """Return the console log of a server."""
        instances = self.cloud.root / 'instances'
        return guests.Console(
            instances / server / 'console.log',
            self.host_of(server).virsh,
            server,
        )

    def tap(self, server: str) -> str:
        """Return the name of a server's only NIC on its host."""
        return self.host_of(server).virsh('domiflist', server).split()[0]

    def claimed_rail(self, server: str) -> int:
        """Return the number of the uplink that a server has claimed."""
        names = {p['uuid']: p['name'] for p in self.admin.providers()}
        (nic,) = [
            names[provider].split(':')[3]
            for provider in self.admin.allocations(server)
            if ':vhpc:' in names[provider]
        ]
        return int(nic.removeprefix('n'))

    def encap_ip(self, server: str) -> str:
        """Return the encap IP that OVN uses for a server; empty for none."""
        return self.cloud.encap_of(self.external_ids(server)['iface-id'])

    def external_ids(self, server: str) -> dict[str, str]:
        """Return the ``external_ids`` of a server's port in Open vSwitch."""
        switch = self.cloud.switch(self.host_of(server))
        return switch.external_ids(self.tap(server))

    def start_outsider(self, compute_host: host.Host) -> outsider.Outsider:
        """Start a machine on a host that sends packets to members."""
        made = outsider.Outsider(self.cloud.switch(compute_host))
        made.start(
            self.tenant, self.cloud.client('nova'), self.networks[0]['uuid']
        )
        return made

    def frames(
        self, sender: str, receiver: str, packets: int
    ) -> dict[tuple[str, str], list[int]]:
        """Have a server send packets to another one, which answers each.

        :returns: frames on each uplink of the hosts of the two, by name of
            the host and by ``in`` or ``out``.
        :raises TooLongError: if an answer is missing.
        """
        address = self.console(receiver).address() or ''
        console = self.console(sender)
        # The first packets make the hosts learn each other's addresses.
        self.cloud.settle_network()
        console.ping(address, 5)
        switches = {
            each.name: self.cloud.switch(each)
            for each in (self.host_of(sender), self.host_of(receiver))
        }
        keys = [(name, way) for name in switches for way in ('in', 'out')]
        before = {
            (name, way): switches[name].frames(way) for name, way in keys
        }
        if not console.ping(address, packets):
            raise TooLongError(
                f'{address} did not answer {packets} packets',
                packets + guests.ANSWER_S,
            )
        return {
            (name, way): [
                now - then
                for now, then in zip(
                    switches[name].frames(way), before[name, way], strict=True
                )
            ]
            for name, way in keys
        }

    def published(self, node: str) -> list[dict[str, Any]]:
        """Return the uplink providers of a compute node in Placement."""
        prefix = f'{node}:vhpc:'
        return [
            provider
            for provider in self.admin.providers()
            if provider['name'].startswith(prefix)
            and model.UPLINK in provider['inventories']
        ]
