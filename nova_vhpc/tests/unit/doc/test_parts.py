# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The page on monitoring lists all parts of the agent's health."""

import re

from nova_vhpc.agent.health import rules
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.doc import test_commands

PAGE = test_commands.TOP / 'doc/source/admin/monitoring.rst'


class PartsTest(base.TestCase):
    def test_page_has_a_row_for_each_part(self) -> None:
        table = PAGE.read_text().partition('* - Part\n')[2]
        table = table.partition('\n\n')[0]
        rows = re.findall(r'^   \* - ``(\w+)``$', table, re.MULTILINE)
        self.assertEqual(list(rules.assess({})), rows)
