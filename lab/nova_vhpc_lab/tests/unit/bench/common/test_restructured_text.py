# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Parts of pages."""

import docutils.core
from oslotest import base

from nova_vhpc_lab.bench.common import restructured_text


class RestructuredTextTest(base.BaseTestCase):
    def test_table_with_empty_cells_is_valid(self) -> None:
        lines = restructured_text.heading('Title') + (
            restructured_text.list_table([('a', 'b'), ('1', ''), ('', '2')])
        )
        html = docutils.core.publish_parts(
            '\n'.join(lines),
            writer_name='html5',
            settings_overrides={'halt_level': 2, 'report_level': 5},
        )['html_body']
        self.assertEqual(2, html.count('<th '))
        self.assertEqual(4, html.count('<td>'))
