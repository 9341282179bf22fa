# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

from nova_vhpc.conf import opts
from nova_vhpc.tests import base


class ListOptsTest(base.TestCase):
    def test_every_option_is_listed_once_and_has_help(self):
        seen = set()
        for group, options in opts.list_opts():
            name = group if isinstance(group, str) else group.name
            for option in options:
                self.assertNotIn((name, option.name), seen)
                seen.add((name, option.name))
                self.assertTrue(option.help, (name, option.name))
        self.assertNotEqual(set(), seen)
