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
