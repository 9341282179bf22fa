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


"""NICs of real guests, re-plugged into bridges with real uplinks."""

import contextlib
import pathlib
import socket
import threading
import types
import uuid as uuid_module
import xml.etree.ElementTree as ElementTree
from typing import Any

import libvirt

from nova_vhpc.agent.libvirt import interfaces
from nova_vhpc.agent.libvirt.domain_xml import parse
from nova_vhpc.agent.uplinks import binder, plugger
from nova_vhpc.linux import qemu_process
from nova_vhpc.testbed import guest as lab_guest
from nova_vhpc.testbed import image as lab_image
from nova_vhpc.tests.functional.agent import base
from nova_vhpc.tests.functional.topology import links

ETH_P_ALL = 3
ETHERTYPE = b'\x88\xb5'
NET = pathlib.Path('/sys/class/net')
SPECS = {'vhpc:workload': 'parallel', 'vhpc:network': 'shared-separate'}


class BindingCase(base.AgentTestCase):
    """A shared bridge, and one of its own with an uplink."""

    def setUp(self) -> None:
        super().setUp()
        self.links = self.useFixture(links.Links())
        self.shared = self.links.bridge('s')
        self.own = self.links.bridge('o')
        self.far = self.links.uplink('u', self.own) + 'x'
        self.records = plugger.BindingJournal(str(self.path / 'state'))
        self.plugger = plugger.Plugger(self.records, qemu_process.Processes())
        self.claimed: dict[str, tuple[str, ...]] = {}
        self.guests: dict[str, Any] = {}
        self.binder = binder.UplinkBinder(
            self.plugger,
            lambda: self.guests,
            lambda: self.conn,
            types.SimpleNamespace(
                bridges=lambda uuid: self.claimed.get(uuid, ())
            ),
        )

    def boot(
        self, bridges: tuple[str, ...], claimed: tuple[str, ...]
    ) -> libvirt.virDomain:
        name = f'bind-{uuid_module.uuid4().hex[:8]}'
        none = pathlib.Path('/x')
        root = ElementTree.fromstring(
            lab_guest.domain_xml(
                name,
                lab_image.GuestImage(none, none),
                memory_mib=32,
                extra_specs=SPECS,
                bridges=bridges,
            )
        )
        system = root.find('os')
        for tag in ('kernel', 'initrd', 'cmdline'):
            system.remove(system.find(tag))
        for nic in root.findall('./devices/interface'):
            # As Nova does: taps are called the same in each run.
            tap = f'tap{uuid_module.uuid4().hex[:8]}'
            ElementTree.SubElement(nic, 'target', dev=tap)
        domain = self.conn.defineXML(ElementTree.tostring(root, 'unicode'))
        self.addCleanup(self._end_domain, domain.UUIDString())
        domain.create()
        self.claimed[domain.UUIDString()] = claimed
        self.follow(domain)
        return domain

    def follow(self, domain: libvirt.virDomain) -> None:
        self.guests[domain.UUIDString()] = types.SimpleNamespace(
            domain=domain,
            domain_id=domain.ID(),
            info=parse(domain.XMLDesc(0)),
            hands_off='',
            holds=set(),
            name=domain.name(),
        )

    def taps(self, domain: libvirt.virDomain) -> list[str]:
        root = ElementTree.fromstring(domain.XMLDesc(0))
        return [
            target.get('dev')
            for target in root.findall('./devices/interface/target')
        ]

    def plugs(self, domain: libvirt.virDomain) -> list[str]:
        """The bridges that the kernel has the guest's taps on.

        While libvirt takes a tap from one bridge to another it is on none.
        """
        found = []
        for tap in self.taps(domain):
            try:
                found.append((NET / tap / 'master').readlink().name)
            except FileNotFoundError:
                found.append('')
        return found

    def listen(self, tap: str) -> socket.socket:
        """Sees the frames that the kernel hands to a guest's NIC.

        The tap's own counters only count what the guest reads, and these
        guests have no system that would.
        """
        sock = socket.socket(
            socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)
        )
        self.addCleanup(sock.close)
        sock.bind((tap, ETH_P_ALL))
        sock.setblocking(False)
        return sock

    def heard(self, sock: socket.socket) -> int:
        """Our frames among those that were seen."""
        count = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                count += sock.recv(2048)[12:14] == ETHERTYPE
        return count

    def flood(self, nic: str, frames: int) -> None:
        """Broadcasts that come in over the uplink."""
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
            sock.bind((nic, 0))
            frame = b'\xff' * 6 + b'\x02' * 6 + ETHERTYPE + b'v' * 46
            for _ in range(frames):
                sock.send(frame)


class _Meanwhile:
    """A domain to which something happens just before it is written.

    :param number: of the write, from 1 on.
    """

    def __init__(
        self, domain: libvirt.virDomain, number: int, happens: Any
    ) -> None:
        self._domain = domain
        self._left = number
        self._happens = happens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._domain, name)

    def updateDeviceFlags(self, xml: str, flags: int) -> Any:
        self._left -= 1
        if not self._left:
            self._happens()
        return self._domain.updateDeviceFlags(xml, flags)


class BindingTest(BindingCase):
    def test_the_last_nic_goes_to_the_claimed_uplink(self) -> None:
        domain = self.boot((self.shared, self.shared), (self.own,))
        before = domain.XMLDesc(0)
        self.binder.reconcile()
        self.assertEqual([self.shared, self.own], self.plugs(domain))

        # What comes in over the uplink reaches that NIC and no other.
        first, second = (self.listen(tap) for tap in self.taps(domain))
        self.flood(self.far, 50)
        self.assertEqual((0, 50), (self.heard(first), self.heard(second)))

        self.binder.stop()
        self.plugger.restore_all(self.conn)
        self.assertEqual([self.shared, self.shared], self.plugs(domain))
        self.assertEqual(before, domain.XMLDesc(0))
        self.assertEqual((), self.records.uuids())

    def test_after_a_crash_all_is_put_back(self) -> None:
        domain = self.boot((self.shared, self.shared), (self.own,))
        self.binder.reconcile()
        # Another process, which knows the journal only.
        other = plugger.Plugger(
            plugger.BindingJournal(str(self.path / 'state')),
            qemu_process.Processes(),
        )
        self.assertEqual({}, other.restore_all(self.conn))
        self.assertEqual([self.shared, self.shared], self.plugs(domain))

    def test_bound_anew_after_a_hard_reboot(self) -> None:
        domain = self.boot((self.shared, self.shared), (self.own,))
        self.binder.reconcile()
        domain.destroy()
        domain.create()
        self.assertEqual([self.shared, self.shared], self.plugs(domain))
        self.follow(domain)
        self.binder.reconcile()
        self.assertEqual([self.shared, self.own], self.plugs(domain))
        self.plugger.restore_all(self.conn)
        self.assertEqual([self.shared, self.shared], self.plugs(domain))

    def bind_and_restart(
        self, bridges: tuple[str, ...], number: int
    ) -> libvirt.virDomain:
        """A guest that libvirt has bound in a run that was not meant.

        :param number: of the NIC that was the first to be bound there.
        """
        domain = self.boot((self.shared, self.shared), bridges)

        def restart() -> None:
            domain.destroy()
            domain.create()

        target = self.guests[domain.UUIDString()]
        target.domain = _Meanwhile(domain, number, restart)
        self.binder.reconcile()
        self.assertIn(bridges[number - 1], self.plugs(domain))
        return domain

    def test_restarted_while_it_is_bound_then_killed(self) -> None:
        domain = self.bind_and_restart((self.own,), 1)
        self.assertEqual({}, self.plugger.restore_all(self.conn))
        self.assertEqual([self.shared, self.shared], self.plugs(domain))

    def test_restarted_while_it_is_bound(self) -> None:
        third = self.links.bridge('t')
        domain = self.bind_and_restart((self.own, third), 2)
        self.follow(domain)
        self.binder.reconcile()
        self.assertEqual([self.own, third], self.plugs(domain))
        self.assertEqual({}, self.plugger.restore_all(self.conn))
        self.assertEqual([self.shared, self.shared], self.plugs(domain))

    def test_the_end_waits_for_a_nic_that_is_being_moved(self) -> None:
        domain = self.boot((self.shared,), (self.own,))
        ends = threading.Thread(target=self.binder.stop)

        def end() -> None:
            ends.start()
            ends.join(1)

        target = self.guests[domain.UUIDString()]
        target.domain = _Meanwhile(domain, 1, end)
        self.binder.start()
        self.wait_for(ends.is_alive, 'the end', 3 * binder.PERIOD_S)
        ends.join()
        self.assertEqual([self.shared], self.plugs(domain))
        self.assertEqual((), self.records.uuids())

    def test_put_back_before_it_migrates_and_when_paused(self) -> None:
        domain = self.boot((self.shared, self.shared), (self.own,))
        self.binder.reconcile()
        self.guests[domain.UUIDString()].hands_off = 'leaving'
        self.binder.reconcile()
        self.assertEqual([self.shared, self.shared], self.plugs(domain))
        self.guests[domain.UUIDString()].hands_off = ''
        self.binder.reconcile()
        self.assertEqual([self.shared, self.own], self.plugs(domain))

    def test_what_others_moved_stays(self) -> None:
        domain = self.boot((self.shared,), (self.own,))
        self.binder.reconcile()
        third = self.links.bridge('t')
        nic = interfaces.read(domain.XMLDesc(0))[0]
        domain.updateDeviceFlags(nic.plugged_into(third), base.LIVE)
        self.plugger.restore_all(self.conn)
        self.assertEqual([third], self.plugs(domain))

    def test_no_claim_no_write(self) -> None:
        domain = self.boot((self.shared,), ())
        self.binder.reconcile()
        self.assertEqual([self.shared], self.plugs(domain))
        self.assertEqual((), self.records.uuids())

    def test_more_claims_than_nics_is_told(self) -> None:
        domain = self.boot((self.shared,), (self.own, self.shared))
        self.binder.reconcile()
        self.assertIn(
            'has 1 NICs',
            self.binder.status()['problems'][domain.UUIDString()],
        )
        self.assertEqual([self.shared], self.plugs(domain))
