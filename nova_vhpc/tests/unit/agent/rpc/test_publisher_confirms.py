# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

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
