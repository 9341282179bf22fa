# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The order of NICs, from what Nova's own code answers."""

import http.server
import json
import logging
import threading

import fixtures
from keystoneauth1 import adapter, noauth, session
from nova.api.openstack import common
from nova.api.openstack.compute.views import ips, server_diagnostics
from nova.network import model as network
from nova.objects import diagnostics

from nova_vhpc.tests import base
from nova_vhpc.tests.unit.vendordata import fakes
from nova_vhpc.vendordata import nova_server

A, B, C = (f'fa:16:3e:00:00:0{number}' for number in 'abc')
BEHIND = ((A, 'net1'), (B, 'net2'), (C, 'net1'))


def _subnet(number):
    return network.Subnet(ips=[network.FixedIP(address=f'10.0.0.{number}')])


def server(nics):
    """A server as Nova's view of its network info tells it."""
    info = network.NetworkInfo(
        network.VIF(
            address=mac,
            network=network.Network(label=label, subnets=[_subnet(number)]),
        )
        for number, (mac, label) in enumerate(nics)
    )
    networks = common.get_networks_for_instance_from_nw_info(info)
    view = ips.ViewBuilder().index(None, networks, extend_address=True)
    return {'id': fakes.uuid(1), 'status': 'ACTIVE', **view}


def macs(member):
    return [nic.mac for nic in member.nics]


class _Nova(http.server.BaseHTTPRequestHandler):
    """Answers for diagnostics, in the words of Nova's view."""

    def do_GET(self):
        asked = self.server.asked
        asked.append((self.path, self.headers['OpenStack-API-Version']))
        found = diagnostics.Diagnostics()
        for mac in self.server.macs:
            found.add_nic(mac_address=mac)
        body = json.dumps(
            server_diagnostics.ViewBuilder().instance_diagnostics(found)
        ).encode()
        self.send_response(self.server.status)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        """Nothing on stderr."""


class NicOrderTest(base.TestCase):
    def setUp(self):
        super().setUp()
        nova = http.server.ThreadingHTTPServer(('127.0.0.1', 0), _Nova)
        nova.asked, nova.macs, nova.status = [], [A, B, C], 200
        thread = threading.Thread(target=nova.serve_forever, args=(0.02,))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(nova.server_close)
        self.addCleanup(nova.shutdown)
        self.nova = nova
        client = adapter.Adapter(
            session.Session(noauth.NoAuth()),
            service_type='compute',
            endpoint_override=f'http://127.0.0.1:{nova.server_port}',
        )
        self.orders = nova_server.NicOrders(client)

    def member(self, told):
        order = self.orders.find([told]).get(told['id'], ())
        return nova_server.member_of(told, fakes.IDS, {}, order)

    def test_nova_groups_by_network(self):
        """Why the addresses alone will not do."""
        self.assertEqual(
            [A, C, B],
            macs(nova_server.member_of(server(BEHIND), fakes.IDS, {})),
        )

    def test_the_diagnostics_have_the_order(self):
        for _again in range(2):
            self.assertEqual([A, B, C], macs(self.member(server(BEHIND))))
        path = f'/servers/{fakes.uuid(1)}/diagnostics'
        # Once for both.
        self.assertEqual([(path, 'compute 2.48')], self.nova.asked)

    def test_diagnostics_of_unambiguous_servers_are_not_read(self):
        for nics in (
            (),
            ((A, 'net1'),),
            ((A, 'net1'), (B, 'net1')),
            ((A, 'net1'), (B, 'net2')),
            ((B, 'net2'), (A, 'net1'), (C, 'net1')),
        ):
            told = server(nics)
            self.assertTrue(nova_server.is_unambiguous(told['addresses']))
            self.assertEqual([mac for mac, _ in nics], macs(self.member(told)))
        self.assertEqual([], self.nova.asked)

    def test_order_is_kept_while_the_diagnostics_cannot_be_read(self):
        """Otherwise the member would have another address for a minute."""
        self.useFixture(fixtures.MockPatchObject(nova_server, '_TTL_S', 0.0))
        self.member(server(BEHIND))
        self.nova.status = 500
        self.assertEqual([A, B, C], macs(self.member(server(BEHIND))))
        self.nova.status, self.nova.macs = 200, [B, A, C]
        self.assertEqual([B, A, C], macs(self.member(server(BEHIND))))

    def test_a_refusal_is_logged_once_and_keeps_novas_order(self):
        self.nova.status = 403
        log = self.useFixture(fixtures.FakeLogger(level=logging.WARNING))
        told = server(BEHIND)
        other = {**told, 'id': fakes.uuid(2)}
        for one in (told, other, told):
            self.assertEqual([A, C, B], macs(self.member(one)))
        self.assertEqual(2, len(self.nova.asked))
        (line,) = log.output.splitlines()
        self.assertIn('os-server-diagnostics', line)
        self.assertIn('403', line)

    def test_without_nova_the_order_is_novas(self):
        self.nova.shutdown()
        self.nova.server_close()
        self.assertEqual([A, C, B], macs(self.member(server(BEHIND))))

    def test_a_nic_that_the_domain_lists_elsewhere(self):
        self.nova.macs = [A, B]
        self.assertEqual([A, C, B], macs(self.member(server(BEHIND))))
