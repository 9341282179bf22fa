# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What one server of Nova's answer becomes."""

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
from nova_vhpc.vendordata import nova_server, opaque_ids


class RunningTest(base.TestCase):
    def test_member_runs_if_nova_says_so_of_its_own_system(self):
        for status, power, host, running in (
            ('ACTIVE', 1, 'UP', True),
            ('ACTIVE', 1, 'UNKNOWN', True),
            # Its host was forced down.
            ('ACTIVE', 1, 'DOWN', False),
            # Nova has not yet noticed that it has shut itself down.
            ('ACTIVE', 4, 'UP', False),
            ('MIGRATING', 1, 'UP', True),
            ('VERIFY_RESIZE', 1, 'UP', True),
            ('BUILD', 0, '', False),
            ('SHUTOFF', 4, 'UP', False),
            ('PAUSED', 3, 'UP', False),
            ('SUSPENDED', 4, 'UP', False),
            ('RESCUE', 1, 'UP', False),
            ('RESIZE', 1, 'UP', False),
            ('SHELVED_OFFLOADED', 4, '', False),
            # The boot failed; and an action on a server that runs.
            ('ERROR', 0, '', False),
            ('ERROR', 1, 'UP', False),
        ):
            server = fakes.server(1) | {
                'status': status,
                'OS-EXT-STS:power_state': power,
                'host_status': host,
            }
            member = nova_server.member_of(server, fakes.IDS, {})
            self.assertEqual(running, member.running, (status, power, host))

    def test_member_of_a_cell_that_is_down_does_not_count_as_running(self):
        member = nova_server.member_of(
            {'id': fakes.uuid(1), 'status': 'UNKNOWN'}, fakes.IDS, {}
        )
        self.assertFalse(member.running)
        self.assertEqual('UNKNOWN', member.status)

    def test_member_that_is_ending_does_not_count_as_running(self):
        for task, running in (
            (None, True),
            ('rebooting', True),
            ('migrating', True),
            ('image_snapshot', True),
            ('deleting', False),
            ('soft-deleting', False),
            ('powering-off', False),
            ('rescuing', False),
            ('shelving', False),
            ('shelving_image_uploading', False),
        ):
            server = fakes.server(1) | {'OS-EXT-STS:task_state': task}
            self.assertEqual(running, nova_server.is_running(server), task)


class MemberTest(base.TestCase):
    def test_value_of_another_kind_is_an_error_of_nova(self):
        """Otherwise it would be in the tenant's JSON, as Infinity is."""
        for key, value in (
            ('name', float('inf')),
            ('name', ['x']),
            ('flavor', {'vcpus': float('nan'), 'extra_specs': {}}),
            ('flavor', {'vcpus': '2', 'extra_specs': {}}),
        ):
            server = {**fakes.server(1), key: value}
            self.assertRaises(
                TypeError, nova_server.member_of, server, fakes.IDS, {}
            )


class ExpectedMembersTest(base.TestCase):
    def test_hint_comes_before_flavor_and_wrong_hint_says_nothing(self):
        for hints, specs, expected in (
            (None, {}, 0),
            ({}, {'members': '4'}, 4),
            # Nova keeps hints as lists.
            ({'vhpc_members': ['8']}, {'members': '4'}, 8),
            ({'vhpc_members': '8'}, {}, 8),
            ({'vhpc_members': 8}, {}, 8),
            ({'vhpc_members': ['many']}, {'members': '4'}, 4),
            ({'vhpc_members': []}, {}, 0),
            ({'vhpc_members': '0'}, {}, 0),
        ):
            server = fakes.server(1, **specs) | {'scheduler_hints': hints}
            self.assertEqual(
                expected, nova_server.expected_members(server), hints
            )


class OpaqueIdsTest(base.TestCase):
    TIERS = {'cn-0042': ('leaf-7', 'row-c')}

    def member(self, ids, host='cn-0042'):
        server = fakes.server(1) | {
            'OS-EXT-SRV-ATTR:host': host,
            'hostId': '0123456789abcdef',
        }
        return nova_server.member_of(server, ids, self.TIERS)

    def test_members_of_one_host_have_its_ids(self):
        one, two = (self.member(fakes.IDS) for _ in range(2))
        self.assertEqual(one.host, two.host)
        self.assertRegex(one.host, '^host-[0-9a-f]{16}$')
        self.assertRegex(one.switch, '^switch-[0-9a-f]{16}$')
        self.assertRegex(one.rack, '^rack-[0-9a-f]{16}$')

    def test_another_project_gets_other_ids_for_the_same_host(self):
        own = self.member(fakes.IDS)
        other = self.member(opaque_ids.OpaqueIds('p2', fakes.SECRET))
        self.assertFalse(
            {own.host, own.switch, own.rack}
            & {other.host, other.switch, other.rack}
        )

    def test_host_whose_name_nova_hides_has_an_id_and_no_switch(self):
        member = self.member(fakes.IDS, host=None)
        self.assertRegex(member.host, '^host-[0-9a-f]{16}$')
        self.assertIsNone(member.switch)


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
