# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of :mod:`nova_vhpc.agent.rpc.exclusive_queue`."""

import importlib.metadata

from nova_vhpc.agent.rpc import exclusive_queue, native_threads, transport
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.agent.clusters import peer_agents


class Channel:
    """A channel like that of amqp before 5.4."""

    def __init__(self) -> None:
        self._confirm_selected = True
        self.confirms_when_opened: list[bool] = []

    def _do_revive(self) -> None:
        self.confirms_when_opened.append(self._confirm_selected)


class ExclusiveQueueTest(base.TestCase):
    def test_oslo_messaging_is_a_version_that_was_tried(self) -> None:
        installed = importlib.metadata.version('oslo.messaging')
        self.assertIn(
            '.'.join(installed.split('.')[:2]),
            exclusive_queue.TRIED,
            f'oslo.messaging {installed} is new here: its undocumented '
            'classes, which exclusive_queue.py builds on, may have changed. '
            'Run functional.phase_exchange with it, and add it to TRIED',
        )

    def test_connections_are_made_by_the_class_of_exclusive_queues(
        self,
    ) -> None:
        """By an attribute that oslo.messaging does not document."""
        conf = peer_agents.make_conf('rabbit://h/')
        plain = native_threads.messaging.get_rpc_transport(conf)
        self.addCleanup(plain.cleanup)
        self.assertIs(
            exclusive_queue.impl_rabbit.Connection,
            plain._driver._connection_pool.connection_cls,
        )
        made = transport.get_transport(conf)
        self.addCleanup(made.cleanup)
        self.assertIs(
            exclusive_queue._Connection,
            made._driver._connection_pool.connection_cls,
        )

    def test_channel_opened_again_asks_for_confirms_again(self) -> None:
        class Old(Channel):
            _do_revive = Channel._do_revive

        exclusive_queue.confirm_again(Old)
        mended = Old._do_revive
        exclusive_queue.confirm_again(Old)
        self.assertIs(mended, Old._do_revive)
        channel = Old()
        channel._do_revive()
        self.assertEqual([False], channel.confirms_when_opened)
