# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of :mod:`nova_vhpc.agent.clusters.bus_health`."""

import logging

import fixtures
from oslotest import base

from nova_vhpc.agent.clusters import bus_health

SEND_TIMEOUT_US = 2_000_000
ECHO_TIMEOUT_US = 6_000_000
S = 1_000_000


class BusHealthTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(
            fixtures.FakeLogger(bus_health.__name__, level=logging.INFO)
        )
        self.health = bus_health.BusHealth(SEND_TIMEOUT_US, ECHO_TIMEOUT_US)
        self.health.start()

    def lines(self) -> int:
        return len(self.log.output.splitlines())

    def come_up(self, now_us: int) -> None:
        self.health.sending(now_us)
        self.health.sent(now_us)
        self.health.received(now_us, now_us + 3000)

    def test_echo_that_comes_back_makes_the_bus_up(self) -> None:
        self.assertTrue(self.health.is_echo_due(1 * S))
        self.health.sending(1 * S)
        self.health.sent(1 * S)
        self.assertEqual('starting', self.health.state)
        self.health.received(1 * S, 1 * S + 3000)
        self.assertEqual('up', self.health.state)
        self.assertEqual(3000, self.health.echo_us)
        self.assertEqual(1, self.lines())
        self.assertFalse(self.health.is_echo_due(2 * S))
        self.assertTrue(self.health.is_echo_due(7 * S))

    def test_echo_may_come_back_before_sending_returns(self) -> None:
        self.health.sending(1 * S)
        self.health.received(1 * S, 1 * S + 10)
        self.health.sent(1 * S)
        self.health.watch(60 * S)
        self.assertEqual('up', self.health.state)

    def test_forged_echo_of_the_future_is_ignored(self) -> None:
        """Otherwise the bus would count as up for good."""
        self.health.received(2**62, 1 * S)
        self.assertEqual('starting', self.health.state)
        self.come_up(2 * S)
        self.health.received(2**62, 3 * S)
        self.assertTrue(self.health.is_echo_due(9 * S))
        self.assertEqual(3000, self.health.echo_us)

    def test_refused_messages_make_the_bus_down(self) -> None:
        self.come_up(1 * S)
        for second in range(2, 9):
            self.health.sending(second * S)
            self.health.failed(second * S, 'no route')
        self.assertEqual('down', self.health.state)
        self.assertEqual('no route', self.health.detail)
        self.come_up(9 * S)
        # One line each: up, down, up.
        self.assertEqual(3, self.lines())

    def test_broker_that_accepts_no_message_makes_the_bus_down(self) -> None:
        self.come_up(1 * S)
        self.health.sending(2 * S)
        self.health.watch(3 * S)
        self.assertEqual('up', self.health.state)
        for second in range(5, 60):
            self.health.watch(second * S)
        self.assertEqual('down', self.health.state)
        self.assertIn('alarm', self.health.detail)
        self.assertEqual(2, self.lines())
        # An echo from before the trouble proves nothing about now.
        self.health.sent()
        self.health.received(2 * S, 60 * S)
        self.assertEqual('down', self.health.state)
        self.assertTrue(self.health.is_echo_due(61 * S))
        self.come_up(61 * S)
        self.assertEqual('up', self.health.state)

    def test_echo_that_does_not_come_back_makes_the_bus_down(self) -> None:
        self.come_up(1 * S)
        for second in range(7, 13):
            self.health.sending(second * S)
            self.health.sent(second * S)
            self.health.watch(second * S)
            self.assertEqual('up', self.health.state)
        self.health.watch(13 * S + 1)
        self.assertEqual('down', self.health.state)
        self.assertIn(
            'to this host itself do not come back', self.health.detail
        )

    def test_messages_to_others_do_not_make_the_bus_up(self) -> None:
        self.health.sending(1 * S)
        self.health.sent()
        self.health.watch(60 * S)
        self.assertEqual('starting', self.health.state)

    def test_echo_after_stop_is_ignored(self) -> None:
        self.come_up(1 * S)
        self.health.stop()
        self.health.received(2 * S, 2 * S)
        self.assertEqual('off', self.health.state)

    def test_failure_after_stop_is_ignored(self) -> None:
        self.health.sending(1 * S)
        self.health.watch(4 * S)
        self.assertEqual('down', self.health.state)
        self.health.stop()
        self.health.failed(5 * S, 'timed out')
        self.assertEqual('off', self.health.state)
        self.assertEqual(1, self.lines())
