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


"""NICs of real guests are plugged into bridges with uplinks."""

import contextlib
import pathlib
import socket
import threading
import types
import uuid as uuid_module
import xml.etree.ElementTree as ElementTree
from typing import Any

import fixtures
import libvirt

from nova_vhpc.agent.libvirt import interfaces
from nova_vhpc.agent.libvirt.domain_xml import parse
from nova_vhpc.agent.uplinks import binder, bindings, claims, plugger
from nova_vhpc.agent.uplinks.binders import binder_set
from nova_vhpc.linux import qemu_process
from nova_vhpc.testbed import guest as testbed_guest
from nova_vhpc.testbed import image as testbed_image
from nova_vhpc.tests.functional.agent import base
from nova_vhpc.tests.functional.topology import links

ETH_P_ALL = 3
ETHERTYPE = b'\x88\xb5'
NET = pathlib.Path('/sys/class/net')
SPECS = {'vhpc:workload': 'parallel', 'vhpc:network': 'shared-separate'}


class BindingCase(base.AgentTestCase):
    """Has a shared bridge, and a separate bridge with an uplink."""

    def setUp(self) -> None:
        super().setUp()
        self.links = self.useFixture(links.Links())
        self.shared = self.links.bridge('s')
        self.own = self.links.bridge('o')
        self.far = self.links.uplink('u', self.own) + 'x'
        self.journal = bindings.BindingJournal(str(self.path / 'state'))
        self.plugger = plugger.Plugger(self.journal, qemu_process.Processes())
        self.claimed: dict[str, tuple[str, ...]] = {}
        self.guests: dict[str, Any] = {}
        self.useFixture(fixtures.MockPatchObject(binder, 'RETRY_S', 0.0))
        self.binder = binder.UplinkBinder(
            binder_set.BinderSet([self.plugger]),
            lambda: self.guests,
            lambda: self.conn,
            types.SimpleNamespace(
                uplinks=lambda uuid: tuple(
                    claims.ClaimedUplink(bridge, 'uplink')
                    for bridge in self.claimed.get(uuid, ())
                )
            ),
        )

    def boot(
        self, bridges: tuple[str, ...], claimed: tuple[str, ...]
    ) -> libvirt.virDomain:
        name = f'bind-{uuid_module.uuid4().hex[:8]}'
        none = pathlib.Path('/x')
        root = ElementTree.fromstring(
            testbed_guest.domain_xml(
                name,
                testbed_image.GuestImage(none, none),
                memory_mib=32,
                extra_specs=SPECS,
                bridges=bridges,
            )
        )
        system = root.find('os')
        for tag in ('kernel', 'initrd', 'cmdline'):
            system.remove(system.find(tag))
        for nic in root.findall('./devices/interface'):
            # Nova, too, gives taps the same names in each run.
            tap = f'tap{uuid_module.uuid4().hex[:8]}'
            ElementTree.SubElement(nic, 'target', dev=tap)
        domain = self.conn.defineXML(ElementTree.tostring(root, 'unicode'))
        self.addCleanup(self._end_domain, domain.UUIDString())
        domain.create()
        self.claimed[domain.UUIDString()] = claimed
        self.add_guest(domain)
        return domain

    def add_guest(self, domain: libvirt.virDomain) -> None:
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
        """Return the bridges of the guest's taps, as the kernel has them.

        While libvirt moves a tap to another bridge, the tap has none: ''.
        """
        bridges = []
        for tap in self.taps(domain):
            try:
                bridges.append((NET / tap / 'master').readlink().name)
            except FileNotFoundError:
                bridges.append('')
        return bridges

    def listen(self, tap: str) -> socket.socket:
        """Return a socket that gets the frames sent to a guest's NIC.

        The tap's counters count only frames that the guest reads, and these
        guests have no operating system that reads any.
        """
        sock = socket.socket(
            socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)
        )
        self.addCleanup(sock.close)
        sock.bind((tap, ETH_P_ALL))
        sock.setblocking(False)
        return sock

    def count_frames(self, sock: socket.socket) -> int:
        """Return how many frames of :meth:`flood` a socket has got."""
        count = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                count += sock.recv(2048)[12:14] == ETHERTYPE
        return count

    def flood(self, nic: str, frames: int) -> None:
        """Send broadcasts that arrive over the uplink."""
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
            sock.bind((nic, 0))
            frame = b'\xff' * 6 + b'\x02' * 6 + ETHERTYPE + b'v' * 46
            for _ in range(frames):
                sock.send(frame)


class _Meanwhile:
    """A domain that calls a function just before one of its writes.

    :param number: number of that write, from 1.
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
    def test_last_nic_is_plugged_into_the_claimed_uplink(self) -> None:
        domain = self.boot((self.shared, self.shared), (self.own,))
        before = domain.XMLDesc(0)
        self.binder.reconcile()
        self.assertEqual([self.shared, self.own], self.plugs(domain))

        # Frames that arrive over the uplink reach that NIC and no other.
        first, second = (self.listen(tap) for tap in self.taps(domain))
        self.flood(self.far, 50)
        self.assertEqual(
            (0, 50), (self.count_frames(first), self.count_frames(second))
        )

        self.binder.stop()
        self.plugger.restore_all(lambda: self.conn)
        self.assertEqual([self.shared, self.shared], self.plugs(domain))
        self.assertEqual(before, domain.XMLDesc(0))
        self.assertEqual((), self.journal.uuids())

    def test_nics_are_restored_after_a_crash(self) -> None:
        domain = self.boot((self.shared, self.shared), (self.own,))
        self.binder.reconcile()
        # Like another process, it knows only the journal.
        other = plugger.Plugger(
            bindings.BindingJournal(str(self.path / 'state')),
            qemu_process.Processes(),
        )
        self.assertEqual({}, other.restore_all(lambda: self.conn))
        self.assertEqual([self.shared, self.shared], self.plugs(domain))

    def test_nic_is_plugged_again_after_a_hard_reboot(self) -> None:
        domain = self.boot((self.shared, self.shared), (self.own,))
        self.binder.reconcile()
        domain.destroy()
        domain.create()
        self.assertEqual([self.shared, self.shared], self.plugs(domain))
        self.add_guest(domain)
        self.binder.reconcile()
        self.assertEqual([self.shared, self.own], self.plugs(domain))
        self.plugger.restore_all(lambda: self.conn)
        self.assertEqual([self.shared, self.shared], self.plugs(domain))

    def bind_and_restart(
        self, bridges: tuple[str, ...], number: int
    ) -> libvirt.virDomain:
        """Return a guest that restarted while its NICs were plugged.

        :param bridges: claimed bridges.
        :param number: number of the first NIC, from 1, that libvirt plugged
            in the new run.
        """
        domain = self.boot((self.shared, self.shared), bridges)

        def restart() -> None:
            domain.destroy()
            domain.create()

        guest = self.guests[domain.UUIDString()]
        guest.domain = _Meanwhile(domain, number, restart)
        self.binder.reconcile()
        self.assertIn(bridges[number - 1], self.plugs(domain))
        return domain

    def test_restore_after_a_kill_reverts_misdirected_plugging(self) -> None:
        domain = self.bind_and_restart((self.own,), 1)
        self.assertEqual({}, self.plugger.restore_all(lambda: self.conn))
        self.assertEqual([self.shared, self.shared], self.plugs(domain))

    def test_guest_restarted_while_plugged_is_restored_at_the_end(
        self,
    ) -> None:
        third = self.links.bridge('t')
        domain = self.bind_and_restart((self.own, third), 2)
        self.add_guest(domain)
        self.binder.reconcile()
        self.assertEqual([self.own, third], self.plugs(domain))
        self.assertEqual({}, self.plugger.restore_all(lambda: self.conn))
        self.assertEqual([self.shared, self.shared], self.plugs(domain))

    def test_stop_waits_for_a_nic_that_is_being_plugged(self) -> None:
        domain = self.boot((self.shared,), (self.own,))
        ends = threading.Thread(target=self.binder.stop)

        def end() -> None:
            ends.start()
            ends.join(1)

        guest = self.guests[domain.UUIDString()]
        guest.domain = _Meanwhile(domain, 1, end)
        self.binder.start()
        self.wait_for(ends.is_alive, 'the end', 30 * binder.PERIOD_S)
        ends.join()
        self.assertEqual([self.shared], self.plugs(domain))
        self.assertEqual((), self.journal.uuids())

    def test_nics_are_restored_while_the_guest_is_held(self) -> None:
        domain = self.boot((self.shared, self.shared), (self.own,))
        self.binder.reconcile()
        self.guests[domain.UUIDString()].hands_off = 'leaving'
        self.binder.reconcile()
        self.assertEqual([self.shared, self.shared], self.plugs(domain))
        self.guests[domain.UUIDString()].hands_off = ''
        self.binder.reconcile()
        self.assertEqual([self.shared, self.own], self.plugs(domain))

    def test_nic_moved_by_others_is_not_restored(self) -> None:
        domain = self.boot((self.shared,), (self.own,))
        self.binder.reconcile()
        third = self.links.bridge('t')
        nic = interfaces.read(domain.XMLDesc(0))[0]
        domain.updateDeviceFlags(nic.plugged_into(third), base.LIVE)
        self.plugger.restore_all(lambda: self.conn)
        self.assertEqual([third], self.plugs(domain))

    def test_guest_without_claims_is_not_plugged(self) -> None:
        domain = self.boot((self.shared,), ())
        self.binder.reconcile()
        self.assertEqual([self.shared], self.plugs(domain))
        self.assertEqual((), self.journal.uuids())

    def test_more_claims_than_nics_are_a_problem_in_the_status(self) -> None:
        domain = self.boot((self.shared,), (self.own, self.shared))
        self.binder.reconcile()
        self.assertIn(
            'has 1 NICs',
            self.binder.status()['problems'][domain.UUIDString()],
        )
        self.assertEqual([self.shared], self.plugs(domain))
