# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""A real agent that steers the packets of a real guest."""

import pathlib
import uuid as uuid_module
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from typing import Any

import libvirt

from nova_vhpc.tests.functional.agent import base
from nova_vhpc.tests.functional.topology import test_publisher, test_publishing
from nova_vhpc.topology import model
from nova_vhpc_lab.ovn import lab
from nova_vhpc_lab.testbed import guest as testbed_guest
from nova_vhpc_lab.testbed import image as testbed_image

MAC = 'fa:16:3e:00:00:01'
SPECS = {'vhpc:workload': 'parallel', 'vhpc:network': 'shared-separate'}


class BindingAgentCase(base.AgentTestCase, test_publisher.PlacementCase):
    """Has a host with uplinks, a guest with one NIC, and Placement."""

    UPLINKS = 3

    def setUp(self) -> None:
        super().setUp()
        self.lab = self.useFixture(lab.Lab())
        # The agent reads the NICs of its own network namespace.
        self.host = self.lab.add_host('h1', self.UPLINKS, namespace=False)
        self.tap = f'{self.lab.tag}t1'
        self.lab.network('net1')
        self.lab.port('net1', 'port1', MAC, '192.0.2.1')
        self.host.make_tap(self.tap)
        self.target = self.boot()
        self.plug()

    def serve(self) -> None:
        self.endpoint = f'http://127.0.0.1:{test_publishing.serve(self).port}'

    def boot(self) -> libvirt.virDomain:
        """Start a guest with a tap, as Nova 2026.2 does."""
        none = pathlib.Path('/x')
        root = ElementTree.fromstring(
            testbed_guest.domain_xml(
                f'binding-{uuid_module.uuid4().hex[:8]}',
                testbed_image.GuestImage(none, none),
                memory_mib=32,
                extra_specs=SPECS,
            )
        )
        system = root.find('os')
        for tag in ('kernel', 'initrd', 'cmdline'):
            system.remove(system.find(tag))
        nic = ElementTree.SubElement(
            root.find('devices'), 'interface', type='ethernet'
        )
        ElementTree.SubElement(nic, 'mac', address=MAC)
        ElementTree.SubElement(nic, 'target', dev=self.tap, managed='no')
        ElementTree.SubElement(nic, 'model', type='virtio')
        domain = self.conn.defineXML(ElementTree.tostring(root, 'unicode'))
        self.addCleanup(self._end_domain, domain.UUIDString())
        domain.create()
        return domain

    def plug(self) -> None:
        """Plug the guest's port, as Nova does."""
        self.host.plug(self.tap, self.target.UUIDString(), 'port1', MAC)

    def start(
        self,
        nics: Sequence[str],
        bridge: str,
        nic: str,
        binding: str = 'true',
    ) -> object:
        """Start the agent, and claim an uplink for the guest.

        :param nics: names of all NICs that are uplinks.
        :param bridge: bridge of the uplink to claim.
        :param nic: its NIC.
        :param binding: value of ``bind_uplinks``.
        """
        agent = self.start_agent(
            bind_uplinks=binding,
            placement__auth_type='none',
            placement__endpoint_override=self.endpoint,
            vhpc_topology__publish='true',
            vhpc_topology__node='cn1',
            vhpc_topology__nic_patterns=','.join(nics),
            vhpc_topology__ovsdb_connection=self.host.socket,
        )
        provider = model.provider_uuid('cn1', bridge, nic)
        self.wait_for(
            lambda: self.status()['publishing']['state'] == 'published',
            'the publication',
        )
        self.claim(provider, self.target.UUIDString())
        return agent

    def bound(self) -> dict[str, Any] | None:
        """Return the status of the binding, once a guest is bound."""
        binding: dict[str, Any] = self.status()['binding']
        return binding if binding['bound'] else None
