# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Set up Keystone: schema, roles, projects, users and the service catalog.

One process does the work of ``keystone-manage db_sync`` and ``bootstrap``, and
creates the users by Keystone's own functions. ``python -m
nova_vhpc_lab.stack.identity KEYSTONE_CONF ENDPOINTS``, where ENDPOINTS is a
JSON file that maps service types to URLs by interface.
"""

import json
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

REGION = 'RegionOne'
PASSWORD = 'secret'
DONE = 'done'
"""Last line of the output of a successful run."""


class User(NamedTuple):
    """A user of the stack, and its roles in its project."""

    project: str
    roles: tuple[str, ...]


USERS: Mapping[str, User] = {
    'admin': User('admin', ('admin',)),
    'nova': User('service', ('admin', 'service')),
    'neutron': User('service', ('admin', 'service')),
    'placement': User('service', ('service',)),
    'glance': User('service', ('service',)),
    # The roles that doc/source/admin/security.rst asks an operator for.
    'vhpc-agent': User('service', ('admin', 'service')),
    'tenant': User('tenant', ('member', 'reader')),
}
"""Users by name."""


def make(conf: Path, endpoints: Mapping[str, Mapping[str, str]]) -> None:
    """Create everything in Keystone's database.

    :param endpoints: URLs by interface, by service type.
    """
    # Imported here: other modules need only the names above.
    from keystone import server
    from keystone.cmd import bootstrap
    from keystone.common import provider_api
    from keystone.common.sql import upgrades

    server.configure(config_files=[str(conf)])
    upgrades.offline_sync_database_to_version()
    bootstrapper = bootstrap.Bootstrapper()
    bootstrapper.admin_username = bootstrapper.project_name = 'admin'
    bootstrapper.admin_password = PASSWORD
    bootstrapper.admin_role_name = 'admin'
    bootstrapper.immutable_roles = True
    bootstrapper.region_id = REGION
    bootstrapper.bootstrap()
    providers = provider_api.ProviderAPIs
    role_ids = {
        role['name']: role['id'] for role in providers.role_api.list_roles()
    }
    project_ids = {'admin': bootstrapper.project_id}
    for name, user in USERS.items():
        if name == 'admin':
            continue
        if user.project not in project_ids:
            project_id = project_ids[user.project] = secrets.token_hex(16)
            providers.resource_api.create_project(
                project_id,
                {
                    'id': project_id,
                    'name': user.project,
                    'domain_id': 'default',
                    'enabled': True,
                },
            )
        created = providers.identity_api.create_user(
            {
                'name': name,
                'password': PASSWORD,
                'domain_id': 'default',
                'enabled': True,
            }
        )
        for role in user.roles:
            providers.assignment_api.add_role_to_user_and_project(
                user_id=created['id'],
                project_id=project_ids[user.project],
                role_id=role_ids[role],
            )
    for kind, urls in endpoints.items():
        service_id = secrets.token_hex(16)
        providers.catalog_api.create_service(
            service_id,
            {'id': service_id, 'name': kind, 'type': kind, 'enabled': True},
        )
        for interface, url in urls.items():
            endpoint_id = secrets.token_hex(16)
            providers.catalog_api.create_endpoint(
                endpoint_id,
                {
                    'id': endpoint_id,
                    'service_id': service_id,
                    'interface': interface,
                    'region_id': REGION,
                    'url': url,
                    'enabled': True,
                },
            )


def main() -> None:
    """Run the program."""
    conf, endpoints = map(Path, sys.argv[1:])
    # Keystone parses sys.argv as its own options.
    sys.argv[1:] = []
    make(conf, json.loads(endpoints.read_text()))
    print(DONE, flush=True)


if __name__ == '__main__':
    main()
