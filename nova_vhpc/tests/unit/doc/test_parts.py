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

"""The page on monitoring lists all parts of the agent's health."""

import re

from nova_vhpc.agent.daemon import health_rules
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.doc import test_commands

PAGE = test_commands.TOP / 'doc/source/admin/monitoring.rst'


class PartsTest(base.TestCase):
    def test_page_has_a_row_for_each_part(self) -> None:
        table = PAGE.read_text().partition('* - Part\n')[2]
        table = table.partition('\n\n')[0]
        rows = re.findall(r'^   \* - ``(\w+)``$', table, re.MULTILINE)
        self.assertEqual(list(health_rules.assess({})), rows)
