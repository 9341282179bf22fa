# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import pathlib

import fixtures
import openstack

from nova_vhpc.tests import base
from nova_vhpc_lab.stack import config, identity
from nova_vhpc_lab.stack.demo import shell


class TestWriteClouds(base.TestCase):
    def test_openstacksdk_reads_the_users_from_the_file(self):
        root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        configuration = config.Config(root, {'keystone': 1}, 'v')
        path = shell.write_clouds(root / 'clouds.yaml', configuration)
        for user in shell.USERS:
            region = openstack.config.OpenStackConfig(
                config_files=[str(path)]
            ).get_one(cloud=user)
            self.assertEqual(user, region.auth['username'])
            self.assertEqual(
                configuration.url('keystone', '/v3'), region.auth['auth_url']
            )
            self.assertEqual(identity.REGION, region.region_name)

    def test_file_with_passwords_is_for_its_owner_only(self):
        root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        configuration = config.Config(root, {'keystone': 1}, 'v')
        path = shell.write_clouds(root / 'clouds.yaml', configuration)
        self.assertEqual(0o600, path.stat().st_mode & 0o777)
