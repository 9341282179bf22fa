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

"""``nova-vhpc-status`` beside a real Placement, in process."""

import pathlib

import fixtures
from oslo_upgradecheck import upgradecheck
from placement.tests.functional.fixtures import placement as placement_fixture

from nova_vhpc.cmd import status
from nova_vhpc.status import host
from nova_vhpc.tests import base


class PlacementTest(base.TestCase):
    """The check against a real Placement in this process."""

    def setUp(self):
        super().setUp()
        self.placement = self.useFixture(placement_fixture.PlacementFixture())

    def check(self):
        file = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'conf')
        file.write_text(
            '[placement]\n'
            'auth_type = admin_token\n'
            'token = admin\n'
            f'endpoint = {self.placement.endpoint}\n'
        )
        conf = status.make_conf()
        conf(['--config-file', str(file)], default_config_files=[])
        return host.Checks(conf)._check_placement()

    def test_before_the_first_agent_has_published(self):
        """Placement knows neither our trait nor our resource class yet."""
        found = self.check()
        self.assertEqual(upgradecheck.Code.WARNING, found.code, found.details)
        self.assertIn('no agent has published', found.details)

    def test_another_refusal_is_a_failure(self):
        self.useFixture(
            fixtures.MonkeyPatch('nova_vhpc.topology.model.TRAIT_HOST', '')
        )
        found = self.check()
        self.assertEqual(upgradecheck.Code.FAILURE, found.code, found.details)
        self.assertIn('400', found.details)
