# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Every option of ours that the docs show exists."""

import pathlib
import re

from nova_vhpc.conf import opts
from nova_vhpc.tests import base

TOP = pathlib.Path(__file__).parents[4]
SECTION = re.compile(r'^ +\[(\w+)\]$')
OPTION = re.compile(r'^ +(\w+) *= ')
INLINE = re.compile(r'``\[(vhpc_\w+)\] ?(\w+)')


def shown(text):
    """Pairs of group and option in examples, and in the text itself."""
    section = None
    for line in text.splitlines():
        if line and not line.startswith(' '):
            section = None
        elif match := SECTION.match(line):
            section = match[1]
        elif section and (match := OPTION.match(line)):
            yield section, match[1]
    yield from INLINE.findall(text)


class OptionsTest(base.TestCase):
    def test_options_exist(self):
        known = {
            (group if isinstance(group, str) else group.name): {
                name
                for option in options
                for name in (option.dest, option.name)
            }
            for group, options in opts.list_opts()
        }
        self.assertIn('vhpc_agent', known)
        checked, wrong = 0, []
        for file in sorted((TOP / 'doc' / 'source').rglob('*.rst')):
            for group, option in shown(file.read_text()):
                if not group.startswith('vhpc_') or group == 'vhpc_nova':
                    # Others' options, and those of keystoneauth.
                    continue
                checked += 1
                if option not in known.get(group, ()):
                    wrong.append(f'{file.name}: [{group}]{option}')
        self.assertGreater(checked, 10)
        self.assertEqual([], wrong)
