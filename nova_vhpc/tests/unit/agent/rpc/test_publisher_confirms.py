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

from nova_vhpc.agent.rpc import publisher_confirms
from nova_vhpc.tests import base


class Channel:
    """A channel like that of amqp before 5.4."""

    def __init__(self) -> None:
        self._confirm_selected = True
        self.confirms_when_opened: list[bool] = []

    def _do_revive(self) -> None:
        self.confirms_when_opened.append(self._confirm_selected)


class MendTest(base.TestCase):
    def test_channel_opened_again_asks_for_confirms_again(self) -> None:
        class Old(Channel):
            _do_revive = Channel._do_revive

        publisher_confirms.mend(Old)
        mended = Old._do_revive
        publisher_confirms.mend(Old)
        self.assertIs(mended, Old._do_revive)
        channel = Old()
        channel._do_revive()
        self.assertEqual([False], channel.confirms_when_opened)
