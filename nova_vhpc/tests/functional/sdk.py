# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""An openstacksdk connection to the Nova and Placement of a test."""

from keystoneauth1 import plugin, session
from openstack import connection


class _ByHeaders(plugin.BaseAuthPlugin):
    """Authenticates by headers, which the test's API accepts; no Keystone."""

    def __init__(self, compute, placement, user, roles):
        super().__init__()
        self._user = user
        self._roles = roles
        self._endpoints = {'compute': compute, 'placement': placement}

    def get_headers(self, session, **kwargs):
        return {
            'X-Auth-User': self._user,
            'X-User-Id': self._user,
            'X-Auth-Token': self._user,
            'X-Auth-Project-Id': '6f70656e737461636b20342065766572',
            'X-Roles': self._roles,
        }

    def get_endpoint(self, session, service_type=None, **kwargs):
        return self._endpoints.get(service_type)

    def get_project_id(self, session, **kwargs):
        return '6f70656e737461636b20342065766572'


def connect(
    api, placement_endpoint, user='admin', roles='reader,member,admin'
):
    """Return a connection, as administrator by default.

    :param api: the OSAPIFixture of the test.
    :param placement_endpoint: URL of the test's PlacementFixture, to which
        the user ``admin`` alone is an administrator.
    :param user: name of the user.
    :param roles: roles of the user in Nova.
    """
    auth = _ByHeaders(api.base_url, placement_endpoint, user, roles)
    return connection.Connection(
        session=session.Session(auth=auth),
        compute_api_version='2.1',
        compute_endpoint_override=api.base_url,
        placement_endpoint_override=placement_endpoint,
    )
