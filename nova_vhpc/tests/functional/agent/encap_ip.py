# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""A host with real Open vSwitch and OVN, and the binder of the agent."""

import abc
import copy
import pathlib
import re
import tempfile
import types
import uuid as uuid_module
from typing import Any

import libvirt
from oslotest import base

from nova_vhpc.agent.ovsdb import connection
from nova_vhpc.agent.uplinks import (
    binder,
    claims,
    port_networks,
    steering,
)
from nova_vhpc.agent.uplinks.binders import base as binder_base
from nova_vhpc.agent.uplinks.binders import (
    binder_set,
    encap_ip,
    encap_ip_journal,
    uplink_links,
)
from nova_vhpc.tests.unit.agent import fake_libvirt
from nova_vhpc.topology import links
from nova_vhpc_lab.ovn import domain, lab
from nova_vhpc_lab.testbed.patience import PATIENCE_S


class Guest:
    """A server with one port.

    :param host: where it runs.
    :param number: last byte of its addresses.
    :param mac: another MAC address than that of the number.
    :param network: network of its port; the tenant network by default.
    """

    def __init__(
        self,
        cloud: lab.Lab,
        host: lab.Host,
        number: int,
        mac: str = '',
        network: str = '',
    ) -> None:
        self.host = host
        self.uuid = str(uuid_module.uuid4())
        self.mac = mac or f'fa:16:3e:00:00:{number:02x}'
        self.address = f'192.0.2.{number}'
        self.port = f'{cloud.tag}-p{number}'
        self.tap = f'{cloud.tag}t{number}'
        self.domain = domain.Domain(self.uuid, (self.mac,))
        cloud.port(network or cloud.tag, self.port, self.mac, self.address)

    def incoming(self, host: lab.Host) -> 'Guest':
        """Return what a live migration makes of it on another host."""
        guest = copy.copy(self)
        guest.host = host
        guest.tap = f'{self.tap}i'
        return guest

    def make_tap(self) -> None:
        """Make its tap, without a guest behind it."""
        self.host.make_tap(self.tap)

    def make_namespace(self) -> None:
        """Make a namespace that sends and receives in its place."""
        self.place = self.host.make_guest(self.tap, self.mac, self.address)

    def ping(self, other: 'Guest', packets: int) -> int:
        """Send packets to another guest, which answers each.

        :returns: number of packets that no answer came to.
        """
        text = self.place.shell(
            'sh',
            '-c',
            f'ping -q -i 0.01 -W 2 -c {packets} {other.address} || true',
        )
        sent, answers = re.findall(r'(\d+) (?:packets|received)', text)
        return int(sent) - int(answers)

    def plug(self) -> None:
        """Add its port to Open vSwitch as os-vif does."""
        self.host.plug(self.tap, self.uuid, self.port, self.mac)

    def unplug(self) -> None:
        """Remove its port."""
        self.host.unplug(self.tap)

    @property
    def encap_ip(self) -> str:
        """The encap IP that Open vSwitch's database names; empty for none."""
        return self.host.encap_ip(self.tap)

    def as_managed(self) -> Any:
        """Return what the agent knows of it."""
        specs = types.SimpleNamespace(
            network='shared-separate', uplink_nic=None
        )
        return types.SimpleNamespace(
            domain=self.domain,
            info=types.SimpleNamespace(specs=specs, uuid=self.uuid),
            hands_off='',
            holds=set(),
            name=self.uuid,
        )


class BindingAgent(abc.ABC):
    """The part of an agent that binds, on one host, in this process.

    :param enabled: whether ``bind_uplinks`` is on.
    :ivar guests: the guests that it manages, by UUID.
    :ivar claimed: numbers of the uplinks that a guest has claimed, by UUID.
    :ivar physnets: physical networks of an uplink, by number.
    """

    def __init__(self, host: lab.Host, enabled: bool = True) -> None:
        self.host = host
        self.guests: dict[str, Any] = {}
        self.claimed: dict[str, tuple[int, ...]] = {}
        self.physnets: dict[int, tuple[str, ...]] = {}
        self.ovsdb = connection.Ovsdb(host.socket)
        self.ovsdb.start()
        assert self.ovsdb.wait(PATIENCE_S)
        binders = binder_set.BinderSet([self.make_binder()])
        self.binder = binder.UplinkBinder(
            binders,
            lambda: dict(self.guests),
            self._libvirt,
            types.SimpleNamespace(uplinks=self._uplinks),
            steering.Steering(
                binders,
                host.name,
                self.ovsdb.read,
                port_networks.PortNetworks(
                    self.ovsdb.read,
                    port_networks.FlowReader(host.socket).dump,
                ),
                links.Links(pathlib.Path('/sys')),
            ),
            enabled=enabled,
        )

    @abc.abstractmethod
    def make_binder(self) -> binder_base.Binder:
        """Return the binder that is tested."""

    @abc.abstractmethod
    def uplink(self, number: int) -> claims.ClaimedUplink:
        """Return an uplink of the host, by its number."""

    def _libvirt(self) -> Any:
        """Return a libvirt that knows no domain but those in ``guests``."""

        def look_up(uuid: str) -> Any:
            raise fake_libvirt.error(libvirt.VIR_ERR_NO_DOMAIN, uuid)

        return types.SimpleNamespace(lookupByUUIDString=look_up)

    def _uplinks(self, uuid: str) -> tuple[claims.ClaimedUplink, ...]:
        return tuple(map(self.uplink, self.claimed.get(uuid, ())))

    def manage(self, guest: Guest, *rails: int) -> None:
        """Take a guest in that has claimed uplinks."""
        self.claimed[guest.uuid] = rails
        self.guests[guest.uuid] = guest.as_managed()

    def problem(self, guest: Guest) -> str:
        """Return why a guest is not bound; empty if it is."""
        problems: dict[str, str] = self.binder.status()['problems']
        return problems.get(guest.uuid, '')


class Agent(BindingAgent):
    """An agent that sets encap IPs.

    :param state: its ``state_path``.
    """

    def __init__(
        self, host: lab.Host, state: str, enabled: bool = True
    ) -> None:
        self._state = state
        super().__init__(host, enabled)

    def make_binder(self) -> encap_ip.EncapIpBinder:
        self.journal = encap_ip_journal.EncapIpJournal(self._state)
        self.encap_ips = encap_ip.EncapIpBinder(
            self.ovsdb,
            self.journal,
            self.host.name,
            uplink_links.UplinkLinks(links.Links(pathlib.Path('/sys'))),
            lambda: False,
        )
        return self.encap_ips

    def uplink(self, number: int) -> claims.ClaimedUplink:
        return claims.ClaimedUplink(
            self.host.bridge(f'n{number}'),
            self.host.nic(f'n{number}'),
            self.host.encap_ips[number],
            self.physnets.get(number, ()),
        )


class EncapIpTestCase(base.BaseTestCase):
    """Has a lab with hosts; a network; and makes agents and guests."""

    HOSTS: dict[str, int] = {'h1': 3}
    """Number of uplinks of each host."""

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.lab = lab.Lab()
        cls.lab.setUp()
        cls.addClassCleanup(cls.lab.cleanUp)
        cls.make_network()
        cls.hosts = {
            name: cls.lab.add_host(name, uplinks)
            for name, uplinks in cls.HOSTS.items()
        }
        cls.numbers = iter(range(1, 250))

    @classmethod
    def make_network(cls) -> None:
        """Make the network that guests are on."""
        cls.lab.network(cls.lab.tag)

    def setUp(self) -> None:
        super().setUp()
        self.state = tempfile.mkdtemp(dir=self.lab.path)

    def guest(
        self,
        name: str,
        sends: bool = False,
        mac: str = '',
        network: str = '',
    ) -> Guest:
        """Return a guest on a host, whose port is plugged until the end.

        :param sends: whether it can send and receive.
        """
        guest = Guest(
            self.lab, self.hosts[name], next(self.numbers), mac, network
        )
        if sends:
            guest.make_namespace()
        else:
            guest.make_tap()
        guest.plug()
        self.addCleanup(guest.unplug)
        return guest

    def agent(
        self, name: str, running: bool = True, enabled: bool = True
    ) -> Agent:
        """Return an agent on a host; started, unless said otherwise.

        :param enabled: whether ``bind_uplinks`` is on.
        """
        agent = Agent(
            self.hosts[name], str(pathlib.Path(self.state) / name), enabled
        )
        self.addCleanup(agent.ovsdb.stop)
        if running:
            agent.binder.start()
            self.addCleanup(agent.binder.stop)
        return agent

    def wait_for_answer(self, source: Guest, target: Guest) -> None:
        """Wait until a guest reaches another one."""
        lab.wait_for(lambda: not source.ping(target, 1), 'the first answer')

    def wait_for_encap_ip(self, guest: Guest, encap_ip: str) -> None:
        """Wait until OVN uses an encap IP for a guest's port."""
        lab.wait_for(
            lambda: self.lab.encap_of(guest.port) == encap_ip,
            f'{encap_ip} for {guest.port}',
        )
