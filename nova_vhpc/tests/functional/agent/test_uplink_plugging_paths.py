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


"""Each network configuration sends packets where the paper draws them.

HPCVirt'09 section 4, with real guests on two "hosts": each a set of Linux
bridges of its own with a veth uplink per bridge, whose other ends meet in
one more bridge, the physical switch. As in the paper, eth0 of every guest
is on the bridge for management and eth1 (for ``multiple-shared`` also
eth2) carries messages. A real Placement chooses the uplinks by the
flavor's recipe; the agent's own publisher, claim reader and binder do the
rest. Then the packet counters of all ports are read.
"""

import pathlib
import shutil
import tempfile
import types
import uuid as uuid_module
from collections.abc import Iterable

from nova_vhpc.agent.libvirt.domain_xml import parse
from nova_vhpc.agent.uplinks import claims, publish_worker
from nova_vhpc.agent.uplinks import plugger as binding
from nova_vhpc.agent.uplinks.binder import UplinkBinder
from nova_vhpc.explain.cloud import placement
from nova_vhpc.explain.request_file import Flavor
from nova_vhpc.flavor import recipes
from nova_vhpc.linux import qemu_process
from nova_vhpc.testbed import guest as lab_guest
from nova_vhpc.testbed import image as lab_image
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
"""A port with fewer carries only what bridges and ARP say to each other."""

BRIDGES = ('0', '1', '2', '3', '4')
"""Of each host: XenBridge0 is ``0``, for management. Which ones are shared
is up to the configuration."""

NICS = 3
MEMBERS = {'a0': 'a', 'a1': 'a', 'b0': 'b'}
"""Guests by the host that they are on."""


class Host:
    """One "host": its bridges, its uplinks and an agent's publisher."""

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
    """Three guests on two hosts, plugged anew for each configuration."""

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
        tag = uuid_module.uuid4().hex[:6]
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
        """Publish, claim and bind; the bridges that each member claimed.

        :param kinds: of the published bridges.
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
            member: claims.UplinkClaims(workers[host].publication).bridges(
                self.guests[member].uuid
            )
            for member, host in MEMBERS.items()
        }

    def publish(
        self, host: Host, kinds: dict[str, str]
    ) -> publish_worker.PublishWorker:
        node = f'host-{host.name}'
        root = str(uuid_module.uuid4())
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
        """Claim as nova-scheduler does: the first candidate on a host."""
        found = self.nova(
            'GET',
            placement.query(flavor) + f'&in_tree={self.roots[node]}',
        )
        candidate = found['allocation_requests'][0]
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
        """What a host's agent does for its servers; undone at the end."""
        image = lab_image.GuestImage(pathlib.Path('/x'), pathlib.Path('/x'))
        info = parse(
            lab_guest.domain_xml('x', image, vcpus=1, extra_specs=recipe)
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
        plugger = binding.Plugger(
            binding.BindingJournal(state), qemu_process.Processes()
        )
        binder = UplinkBinder(
            plugger,
            lambda: servers,
            lambda: self.conn,
            claims.UplinkClaims(worker.publication),
        )
        self.addCleanup(plugger.restore_all, self.conn)
        binder.reconcile()
        self.assertEqual({}, binder.status()['problems'])
        self.assertEqual(sorted(servers), binder.status()['bound'])

    # -- packets -----------------------------------------------------------

    def counters(self) -> dict[str, int]:
        """Packets of every port of every bridge, in each direction."""
        found = {}
        for host in self.hosts.values():
            for bridge in host.bridges:
                for port in (NET / bridge / 'brif').iterdir():
                    statistics = NET / port.name / 'statistics'
                    for way in ('rx_packets', 'tx_packets'):
                        found[f'{port.name} {way}'] = int(
                            (statistics / way).read_text()
                        )
        return found

    def send(self, source: str, target: str, nic: int = 1) -> 'Carried':
        """Messages to a peer's address on a net, and who carried them."""
        number = list(MEMBERS).index(target) + 1
        address = f'10.77.{nic}.{number}'
        # All switches learn where both guests are.
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
        raise AssertionError(f'{bridge} is of no host')

    # -- section 4 ---------------------------------------------------------

    def test_shared(self) -> None:
        """All guests of a host on one bridge and one uplink."""
        claimed = self.configure_network('shared', {'1': 'shared'})
        a, b = (self.hosts[name].bridges[1] for name in 'ab')
        self.assertEqual({'a0': (a,), 'a1': (a,), 'b0': (b,)}, claimed)

        self.send('a0', 'a1').assert_only([a], [])
        for member in ('a0', 'a1'):
            self.send(member, 'b0').assert_only([a, b], [a, b])

    def test_multiple_shared(self) -> None:
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

    def test_separate(self) -> None:
        """A bridge and an uplink per guest, for co-located peers too."""
        claimed = self.configure_network(
            'separate', {'3': 'separate', '4': 'separate'}
        )
        (a0,), (a1,), (b0,) = (claimed[member] for member in MEMBERS)
        self.assertEqual({a0, a1}, set(self.hosts['a'].bridges[3:]))

        self.send('a0', 'a1').assert_only([a0, a1], [a0, a1])
        self.send('a0', 'b0').assert_only([a0, b0], [a0, b0])
        self.send('a1', 'b0').assert_only([a1, b0], [a1, b0])

    def test_shared_separate(self) -> None:
        """The shared bridge for co-located peers, else the own uplink.

        By the guests' routing tables, as the paper has it; these routes
        are what our vendordata tells a member.
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
        """All packets went over these bridges and uplinks, none elsewhere.

        :param uplinks: named by their bridges.
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
        named = [test.uplink(bridge) for bridge in uplinks]
        every = [
            uplink
            for host in test.hosts.values()
            for uplink in host.uplinks.values()
        ]
        test.assertEqual(
            sorted(named), sorted(ports.intersection(every)), self._grown
        )
        for port, packets in self._grown.items():
            name = port.split()[0]
            if name in named:
                # Requests one way, answers the other.
                test.assertGreaterEqual(packets, PINGS, port)
            elif name not in ports:
                test.assertLess(packets, NOISE, port)
