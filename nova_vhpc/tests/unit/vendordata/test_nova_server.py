# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What one server of Nova's answer becomes."""

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
