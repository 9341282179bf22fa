# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.


"""Packets of each network configuration take the way the paper shows.

HPCVirt'09 section 4, with real guests on two "hosts". Each host is a set of
Linux bridges, each with a veth uplink to one more bridge, the physical switch.
As in the paper, eth0 of every guest is on the management bridge, and eth1 (for
``multiple-shared`` also eth2) carries messages. A real Placement chooses the
uplinks by the flavor's recipe; the agent's publisher, claim reader and binder
publish and plug them. Then the packet counters of all ports are read.
"""

import pathlib
import shutil
import tempfile
import types
import uuid as uuid
from collections.abc import Iterable

from nova_vhpc.agent.libvirt.domain_xml import parse
from nova_vhpc.agent.uplinks import bindings, claims, plugger, publish_worker
from nova_vhpc.agent.uplinks.binder import UplinkBinder
from nova_vhpc.agent.uplinks.binders import binder_set
from nova_vhpc.explain.cloud import placement
from nova_vhpc.explain.request_file import Flavor
from nova_vhpc.flavor import recipes
from nova_vhpc.linux import qemu_process
from nova_vhpc.testbed import guest as testbed_guest
from nova_vhpc.testbed import image as testbed_image
from nova_vhpc.tests.functional.agent import base, shell_guest
from nova_vhpc.tests.functional.topology import (
    links,
    test_publisher,
    test_publishing,
)

NET = pathlib.Path('/sys/class/net')
PINGS = 300
"""Packets per flow and direction."""

NOISE = PINGS // 3
"""A port with fewer packets carries only those of bridges and of ARP."""

BRIDGES = ('0', '1', '2', '3', '4')
"""Bridges of each host. ``0``, the paper's XenBridge0, is for management; the
configuration decides which of the bridges are shared."""

NICS = 3
MEMBERS = {'a0': 'a', 'a1': 'a', 'b0': 'b'}
"""Name of each guest's host."""


class Host:
    """One "host" with its bridges and uplinks."""

    def __init__(self, name: str, fabric: links.Links, switch: str) -> None:
        self.name = name
        self.bridges = [fabric.bridge(name + word) for word in BRIDGES]
        self.uplinks: dict[str, str] = {}
        for word, bridge in zip(BRIDGES, self.bridges, strict=True):
            uplink = fabric.uplink(name + word + 'u', bridge)
            fabric.set(uplink + 'x', master=fabric.index(switch))
            self.uplinks[bridge] = uplink

    @property
    def management(self) -> str:
        """The bridge of every guest's eth0."""
        return self.bridges[0]


class PathsTest(base.AgentTestCase, test_publisher.PlacementCase):
    """Three guests on two hosts, plugged again for each configuration."""

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.links = links.Links()
        cls.links.setUp()
        cls.addClassCleanup(cls.links.cleanUp)
        switch = cls.links.bridge('sw')
        cls.hosts = {name: Host(name, cls.links, switch) for name in 'ab'}
        scratch = pathlib.Path(tempfile.mkdtemp(prefix='nv-path-'))
        cls.addClassCleanup(shutil.rmtree, scratch, True)
        image = shell_guest.build_image(scratch)
        tag = uuid.uuid4().hex[:6]
        cls.guests = {}
        for member, host in MEMBERS.items():
            guest = shell_guest.ShellGuest(
                cls.conn,
                image,
                f'p{tag}{member}',
                [cls.hosts[host].management] * NICS,
                scratch,
            )
            cls.addClassCleanup(guest.end)
            cls.guests[member] = guest
        for number, guest in enumerate(cls.guests.values(), 1):
            guest.wait()
            guest.run(
                *(
                    f'ip addr add 10.77.{nic}.{number}/24 dev eth{nic}'
                    f' && ip link set eth{nic} up'
                    for nic in range(NICS)
                )
            )

    @classmethod
    def tearDownClass(cls) -> None:
        # Guests end before the libvirtd that the base class stops.
        cls.doClassCleanups()
        super().tearDownClass()

    def setUp(self) -> None:
        super().setUp()
        self.roots: dict[str, str] = {}

    def serve(self) -> None:
        self.endpoint = f'http://127.0.0.1:{test_publishing.serve(self).port}'

    # -- the configuration -------------------------------------------------

    def configure_network(
        self, network: str, kinds: dict[str, str]
    ) -> dict[str, tuple[str, ...]]:
        """Publish, claim and bind for one network configuration.

        :param kinds: kind of each published bridge.
        :returns: the bridges that each member claimed.
        """
        recipe = recipes.recipe(
            {'workload': 'parallel', 'network': network, 'uplink_nic': '1'}
        )
        flavor = Flavor(vcpus=1, ram_mb=128, extra_specs=recipe)
        for guest in self.guests.values():
            guest.run(*(f'ip neigh flush dev eth{n}' for n in range(NICS)))
        workers = {
            name: self.publish(host, kinds)
            for name, host in self.hosts.items()
        }
        for member, host in MEMBERS.items():
            self.claim_uplinks(
                self.guests[member].uuid, f'host-{host}', flavor
            )
        for name, worker in workers.items():
            self.bind(
                worker,
                recipe,
                [m for m, host in MEMBERS.items() if host == name],
            )
        return {
            member: tuple(
                uplink.bridge
                for uplink in claims.UplinkClaims(
                    workers[host].publication
                ).uplinks(self.guests[member].uuid)
                or ()
            )
            for member, host in MEMBERS.items()
        }

    def publish(
        self, host: Host, kinds: dict[str, str]
    ) -> publish_worker.PublishWorker:
        node = f'host-{host.name}'
        root = str(uuid.uuid4())
        self.roots[node] = root
        self.nova('POST', '/resource_providers', name=node, uuid=root)
        self.nova(
            'PUT',
            f'/resource_providers/{root}/inventories',
            resource_provider_generation=0,
            inventories={
                'VCPU': {'total': 8},
                'MEMORY_MB': {'total': 8192},
            },
        )
        worker = publish_worker.PublishWorker(
            test_publishing.make_conf(
                self.endpoint,
                node=node,
                bridges=[
                    f'{host.bridges[int(word)]}:{kind}'
                    for word, kind in kinds.items()
                ],
                nic_patterns=list(host.uplinks.values()),
            ),
            node,
        )
        self.addCleanup(worker.stop)
        worker.start()
        self.wait_for(
            lambda: worker.status()['state'] == 'published',
            'the publication',
            60,
        )
        return worker

    def claim_uplinks(self, server: str, node: str, flavor: Flavor) -> None:
        """Claim on a host as nova-scheduler with the filter does.

        Among the candidates of Placement the filter takes one that claims no
        uplink twice.
        """
        answer = self.nova(
            'GET',
            placement.query(flavor) + f'&in_tree={self.roots[node]}',
        )
        candidate = max(
            answer['allocation_requests'],
            key=lambda request: len(request['allocations']),
        )
        self.nova(
            'PUT',
            f'/allocations/{server}',
            allocations=candidate['allocations'],
            project_id='p',
            user_id='u',
            consumer_generation=None,
        )

    def bind(
        self,
        worker: publish_worker.PublishWorker,
        recipe: dict[str, str],
        members: Iterable[str],
    ) -> None:
        """Plug members' NICs as their host's agent does, until the end."""
        image = testbed_image.GuestImage(
            pathlib.Path('/x'), pathlib.Path('/x')
        )
        info = parse(
            testbed_guest.domain_xml('x', image, vcpus=1, extra_specs=recipe)
        )
        servers = {}
        for member in members:
            domain = self.guests[member].domain
            servers[domain.UUIDString()] = types.SimpleNamespace(
                domain=domain,
                domain_id=domain.ID(),
                info=info,
                hands_off='',
                holds=set(),
                name=member,
            )
        state = tempfile.mkdtemp(dir=self.path)
        nic_plugger = plugger.Plugger(
            bindings.BindingJournal(state), qemu_process.Processes()
        )
        binder = UplinkBinder(
            binder_set.BinderSet([nic_plugger]),
            lambda: servers,
            lambda: self.conn,
            claims.UplinkClaims(worker.publication),
        )
        self.addCleanup(nic_plugger.restore_all, lambda: self.conn)
        binder.reconcile()
        self.assertEqual({}, binder.status()['problems'])
        self.assertEqual(sorted(servers), binder.status()['bound'])

    # -- packets -----------------------------------------------------------

    def counters(self) -> dict[str, int]:
        """Return the packets of each bridge's ports, by port and direction."""
        packets = {}
        for host in self.hosts.values():
            for bridge in host.bridges:
                for port in (NET / bridge / 'brif').iterdir():
                    statistics = NET / port.name / 'statistics'
                    for way in ('rx_packets', 'tx_packets'):
                        packets[f'{port.name} {way}'] = int(
                            (statistics / way).read_text()
                        )
        return packets

    def send(self, source: str, target: str, nic: int = 1) -> 'Carried':
        """Send messages to a peer, and return what each port carried.

        :param nic: number of the NIC to which the messages go.
        """
        number = list(MEMBERS).index(target) + 1
        address = f'10.77.{nic}.{number}'
        # These packets let all bridges learn where both guests are.
        self.guests[source].run(f'busybox ping -q -c 2 -A -w 60 {address}')
        before = self.counters()
        self.guests[source].run(
            f'busybox ping -q -c {PINGS} -A -W 60 {address}'
        )
        after = self.counters()
        grown = {port: after[port] - count for port, count in before.items()}
        return Carried(self, grown)

    def uplink(self, bridge: str) -> str:
        for host in self.hosts.values():
            if bridge in host.uplinks:
                return host.uplinks[bridge]
        raise AssertionError(f'no host has bridge {bridge}')

    # -- section 4 ---------------------------------------------------------

    def test_shared_packets_use_one_bridge_and_uplink_per_host(self) -> None:
        """All guests of a host on one bridge and one uplink."""
        claimed = self.configure_network('shared', {'1': 'shared'})
        a, b = (self.hosts[name].bridges[1] for name in 'ab')
        self.assertEqual({'a0': (a,), 'a1': (a,), 'b0': (b,)}, claimed)

        self.send('a0', 'a1').assert_only([a], [])
        for member in ('a0', 'a1'):
            self.send(member, 'b0').assert_only([a, b], [a, b])

    def test_multiple_shared_packets_use_the_bridge_of_their_nic(self) -> None:
        """All guests of a host on two bridges and two uplinks."""
        claimed = self.configure_network(
            'multiple-shared', {'1': 'shared', '2': 'shared'}
        )
        a, b = (self.hosts[name].bridges for name in 'ab')
        self.assertEqual(
            {'a0': (a[1], a[2]), 'a1': (a[1], a[2]), 'b0': (b[1], b[2])},
            claimed,
        )
        for nic in (1, 2):
            self.send('a0', 'a1', nic).assert_only([a[nic]], [])
            self.send('a1', 'b0', nic).assert_only(
                [a[nic], b[nic]], [a[nic], b[nic]]
            )

    def test_separate_packets_use_an_own_bridge_and_uplink(self) -> None:
        """A bridge and an uplink per guest, for co-located peers too."""
        claimed = self.configure_network(
            'separate', {'3': 'separate', '4': 'separate'}
        )
        (a0,), (a1,), (b0,) = (claimed[member] for member in MEMBERS)
        self.assertEqual({a0, a1}, set(self.hosts['a'].bridges[3:]))

        self.send('a0', 'a1').assert_only([a0, a1], [a0, a1])
        self.send('a0', 'b0').assert_only([a0, b0], [a0, b0])
        self.send('a1', 'b0').assert_only([a1, b0], [a1, b0])

    def test_shared_separate_packets_to_local_peers_stay_on_the_host(
        self,
    ) -> None:
        """The shared bridge for co-located peers, else the own uplink.

        The guests' routing tables decide, as in the paper; members get such
        routes from the vendordata service.
        """
        claimed = self.configure_network(
            'shared-separate',
            {'0': 'shared', '3': 'separate', '4': 'separate'},
        )
        (a0,), (a1,), (b0,) = (claimed[member] for member in MEMBERS)
        self.assertEqual({a0, a1}, set(self.hosts['a'].bridges[3:]))
        for member, peer in (('a0', 2), ('a1', 1)):
            guest = self.guests[member]
            route = f'10.77.1.{peer}/32'
            guest.run(f'ip route replace {route} via 10.77.0.{peer} dev eth0')
            self.addCleanup(guest.run, f'ip route del {route}')

        shared = self.hosts['a'].management
        self.send('a0', 'a1').assert_only([shared], [])
        self.send('a0', 'b0').assert_only([a0, b0], [a0, b0])
        self.send('a1', 'b0').assert_only([a1, b0], [a1, b0])


class Carried:
    """What each port carried of one flow."""

    def __init__(self, test: PathsTest, grown: dict[str, int]) -> None:
        self._test = test
        self._grown = grown

    def assert_only(self, bridges: list[str], uplinks: list[str]) -> None:
        """Assert that packets used these bridges and uplinks, and no others.

        :param uplinks: the uplinks, by the names of their bridges.
        """
        test = self._test
        ports = {
            port.split()[0]
            for port, packets in self._grown.items()
            if packets >= PINGS
        }
        test.assertEqual(
            sorted(bridges),
            sorted({(NET / p / 'master').readlink().name for p in ports}),
            self._grown,
        )
        expected_uplinks = [test.uplink(bridge) for bridge in uplinks]
        all_uplinks = [
            uplink
            for host in test.hosts.values()
            for uplink in host.uplinks.values()
        ]
        test.assertEqual(
            sorted(expected_uplinks),
            sorted(ports.intersection(all_uplinks)),
            self._grown,
        )
        for port, packets in self._grown.items():
            name = port.split()[0]
            if name in expected_uplinks:
                # Requests in one direction, answers in the other.
                test.assertGreaterEqual(packets, PINGS, port)
            elif name not in ports:
                test.assertLess(packets, NOISE, port)
