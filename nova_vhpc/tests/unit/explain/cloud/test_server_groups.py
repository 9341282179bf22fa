# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import threading
import types
import urllib.parse

from nova_vhpc.clients import openstack
from nova_vhpc.explain import cloud
from nova_vhpc.explain.cloud import server_groups
from nova_vhpc.explain.request import ExplainRequest
from nova_vhpc.tests import base

PAGE = 1000


class Compute:
    """Nova's server groups, a page at a time, as its API gives them."""

    def __init__(self, groups):
        self.groups = [
            {
                'id': f'id{number}',
                'name': f'name{number}',
                'members': [],
                'policy': 'affinity',
                'rules': {},
            }
            for number in range(groups)
        ]
        self.hosts = {}
        self.compute = self

    def get(self, path, microversion):
        if path.startswith('/servers/'):
            host = self.hosts.get(path.removeprefix('/servers/'))
            server = {'server': {'OS-EXT-SRV-ATTR:host': host}}
            if host == 'dark':
                # All that Nova tells of a server in a cell that is down.
                server = {'server': {'status': 'UNKNOWN'}}
            return types.SimpleNamespace(
                status_code=200 if host else 404,
                json=lambda: server,
                text='could not be found',
            )
        query = dict(urllib.parse.parse_qsl(path.partition('?')[2]))
        first = int(query.get('offset', 0))
        body = {'server_groups': self.groups[first : first + PAGE]}
        return types.SimpleNamespace(status_code=200, json=lambda: body)


class GroupTest(base.TestCase):
    def look_up(self, groups, name):
        return server_groups.look_up(Compute(groups), ExplainRequest(), name)

    def test_groups_beyond_the_first_page_are_found(self):
        for name in ('id0', 'name0', 'id2400', 'name2400'):
            self.assertEqual('affinity', self.look_up(2401, name).policy)

    def test_deleted_member_does_not_count(self):
        compute = Compute(1)
        compute.groups[0]['members'] = ['a', 'gone', 'b']
        compute.hosts = {'a': 'one', 'b': 'one'}
        found = server_groups.look_up(compute, ExplainRequest(), 'id0')
        self.assertEqual({'one': 2}, found.existing)
        self.assertEqual(2, len(found.running_members))

    def test_members_of_cells_that_do_not_answer_are_counted_apart(self):
        compute = Compute(1)
        compute.groups[0]['members'] = ['a', 'b']
        compute.hosts = {'a': 'one', 'b': 'dark'}
        found = server_groups.look_up(compute, ExplainRequest(), 'id0')
        self.assertEqual(({'one': 1}, 1), (found.existing, found.unlocated))

    def test_members_of_a_large_group_are_read_several_at_a_time(self):
        """One after the other, a thousand take minutes."""
        compute = Compute(1)
        compute.groups[0]['members'] = ['a', 'b', 'c']
        compute.hosts = dict.fromkeys('abc', 'one')
        together = threading.Barrier(3)
        get = compute.get

        def slow(path, microversion):
            if path.startswith('/servers/'):
                together.wait(60)
            return get(path, microversion)

        compute.get = slow
        found = server_groups.look_up(compute, ExplainRequest(), 'id0')
        self.assertEqual(('a', 'b', 'c'), found.running_members)

    def test_id_wins_over_a_name(self):
        """Tenants choose the names of groups."""
        compute = Compute(3)
        compute.groups[0].update(name='id2', policy='soft-affinity')
        found = server_groups.look_up(compute, ExplainRequest(), 'id2')
        self.assertEqual('affinity', found.policy)

    def test_name_of_several_groups_is_refused(self):
        compute = Compute(3)
        compute.groups[2]['name'] = 'name0'
        error = self.assertRaises(
            openstack.CloudError,
            server_groups.look_up,
            compute,
            ExplainRequest(),
            'name0',
        )
        self.assertIn('give the ID of one: id0, id2', str(error))

    def test_error_names_the_missing_group(self):
        for groups in (0, PAGE, PAGE + 1):
            error = self.assertRaises(
                openstack.CloudError, self.look_up, groups, 'other'
            )
            self.assertIn("no server group 'other'", str(error))

    def test_group_of_wrong_kind_is_a_cloud_error(self):
        for key, value in (('members', 5), ('policy', []), ('rules', None)):
            compute = Compute(1)
            compute.groups[0][key] = value
            request = ExplainRequest(group_name='id0')
            error = self.assertRaises(
                openstack.CloudError, cloud.look_up, compute, request
            )
            self.assertIn('cannot be read', str(error))

    def test_host_of_wrong_kind_is_a_cloud_error(self):
        compute = Compute(1)
        compute.groups[0]['members'] = ['a']
        compute.hosts = {'a': 5}
        request = ExplainRequest(group_name='id0')
        self.assertRaises(
            openstack.CloudError, cloud.look_up, compute, request
        )

    def test_member_that_is_null_is_an_error_and_not_deleted(self):
        compute = Compute(1)
        compute.groups[0]['members'] = ['a']
        get = compute.get
        null = types.SimpleNamespace(
            status_code=200, json=lambda: {'server': None}
        )
        compute.get = lambda path, microversion: (
            null if path == '/servers/a' else get(path, microversion)
        )
        request = ExplainRequest(group_name='id0')
        self.assertRaises(
            openstack.CloudError, cloud.look_up, compute, request
        )
