# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Calls over a libvirt connection on which another call hangs."""

import threading

import libvirt

from nova_vhpc.agent.libvirt import connection
from nova_vhpc.tests.functional.agent import base, test_trouble

CALLS = 30


class TestWakeup(base.AgentTestCase):
    """All threads of the agent share one connection."""

    hang = test_trouble.TestTrouble.hang

    def test_hanging_call_does_not_delay_other_calls(self) -> None:
        hanging, other = (self.domain(test_trouble.PARALLEL) for _ in range(2))
        connection.start_event_loop()
        conn = libvirt.open(self.daemon.uri)
        self.addCleanup(conn.close)
        conn.setKeepAlive(
            connection.KEEPALIVE_INTERVAL_S, connection.KEEPALIVE_COUNT
        )
        hanging_domain = conn.lookupByUUIDString(hanging.UUIDString())
        cure = self.hang(hanging)
        period = {'vcpu_period': 50_000}
        held = threading.Thread(
            target=hanging_domain.setSchedulerParametersFlags,
            args=(period, base.LIVE),
        )
        held.start()
        self.addCleanup(held.join)
        self.addCleanup(cure)
        connection.ConnectionWakeup(lambda: conn, held.is_alive).wake()
        for number in range(CALLS):
            other_domain = conn.lookupByUUIDString(other.UUIDString())
            other_domain.setSchedulerParametersFlags(period, base.LIVE)
            # libvirt gives the hanging call up after half a minute.
            self.assertTrue(held.is_alive(), number)
