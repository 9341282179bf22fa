# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A cloud with Keystone, Placement and nova-api only.

It answers what our programs ask for, but has no host and starts in seconds.
"""

import pymysql

from nova_vhpc_lab.stack import cloud, identity


class ApiCloud(cloud.Cloud):
    """Keystone, Placement and nova-api on MariaDB, as processes.

    As that of devstack, the catalog has public endpoints only.
    """

    def start(self) -> None:
        """Start the services, in parallel where they allow it."""
        self.config.write_keystone(interfaces=('public',))
        self.config.write_placement()
        self.config.write_nova({})
        # Lets MariaDB's user into the directory.
        self._keeper = self.keeper
        self._start_database()
        keystone = self._start_keystone()
        schema = self.spawn(
            'schema', *self._manage('make'), self.config.database('nova_cell0')
        )
        self.run_wsgi('placement')
        self.await_end(schema, 'the database schemas')
        self.run_wsgi('nova')
        self.await_end(keystone, 'the users')
        for name in ('keystone', 'placement', 'nova'):
            self.wait_http(name)

    def halt(self) -> None:
        """End all processes."""
        if self._keeper is not None:
            self._keeper.close()

    def add_user(self, name: str, roles: tuple[str, ...]) -> None:
        """Create a user with roles in the project ``service``."""
        admin = self.client('admin')
        user = admin.request(
            'identity',
            'POST',
            '/users',
            {'user': {'name': name, 'password': identity.PASSWORD}},
        )['user']['id']
        project = admin.request('identity', 'GET', '/projects?name=service')
        project_id = project['projects'][0]['id']
        for role in roles:
            found = admin.request('identity', 'GET', f'/roles?name={role}')
            admin.request(
                'identity',
                'PUT',
                f'/projects/{project_id}/users/{user}/roles/'
                f'{found["roles"][0]["id"]}',
            )

    def expire_password(self, name: str) -> None:
        """Let a user's password have expired, as after password_expires_days.

        Keystone's API cannot do so.
        """
        with (
            pymysql.connect(
                host='127.0.0.1',
                port=self.ports['db'],
                user='vhpc',
                password='vhpc',
                database='keystone',
                autocommit=True,
            ) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(
                'UPDATE password SET expires_at = %s, expires_at_int = %s '
                'WHERE local_user_id = '
                '(SELECT id FROM local_user WHERE name = %s)',
                ('2020-01-01', 1577836800000000, name),
            )

    def revoke(self, token: str) -> None:
        """Make a token invalid before it expires."""
        self.client('admin').session.delete(
            '/auth/tokens',
            endpoint_filter={'service_type': 'identity'},
            headers={'X-Subject-Token': token},
        )

    def start_keystone(self) -> None:
        """Start Keystone again after its daemon was stopped."""
        self.run_wsgi('keystone')
        self.wait_http('keystone')
