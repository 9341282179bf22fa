# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""Simulated hosts agree on slots by the real protocol."""

import random
import unittest

from nova_vhpc.control import model
from nova_vhpc_lab.sim import slot_bus
from nova_vhpc_lab.sim.agenda import Agenda
from nova_vhpc_lab.tests.unit.sim import clock


class SlotBusTest(unittest.TestCase):
    def setUp(self):
        self.agenda = Agenda(clock.Clock())

    def _hosts(self, clusters, loss=0.0):
        """Return hosts with these clusters, which ask for half of the time."""
        bus = slot_bus.SlotBus(
            self.agenda, slot_bus.BusSettings(loss=loss), random.Random(1)
        )
        hosts = [
            bus.join(f'h{number}', names)
            for number, names in enumerate(clusters)
        ]
        for host in hosts:
            self._ask(host)
        self.bus = bus
        return hosts

    def _ask(self, host):
        host.publish(
            [model.GangDemand(key, 4, 0.5) for key in sorted(host.clusters)], 4
        )
        self.agenda.at(self.agenda.now_us + 100_000, lambda: self._ask(host))

    def _assert_agreed(self, hosts):
        slots = {}
        for host in hosts:
            table = host.table()
            self.assertEqual(host.clusters, table.keys())
            for key, slot in table.items():
                self.assertEqual(slots.setdefault(key, slot), slot)
            self.assertEqual(2, len({slot.slots for slot in table.values()}))

    def test_clusters_get_the_same_slots_on_all_their_hosts(self):
        hosts = self._hosts(({'a', 'b'}, {'b', 'c'}, {'c', 'd'}))
        self.agenda.run(5_000_000)
        self._assert_agreed(hosts)

    def test_lost_messages_delay_but_do_not_prevent_it(self):
        hosts = self._hosts(({'a', 'b'}, {'a', 'b'}, {'a', 'b'}), loss=0.3)
        self.agenda.run(30_000_000)
        self._assert_agreed(hosts)

    def test_messages_reach_hosts_of_the_cluster_only(self):
        hosts = self._hosts(({'a', 'b'}, {'a', 'b'}, {'z'}))
        self.agenda.run(5_000_000)
        self._assert_agreed(hosts[:2])
        self.assertEqual({}, hosts[2].table())

    def test_without_changes_few_messages_are_sent(self):
        hosts = self._hosts(({'a', 'b'},) * 4)
        self.agenda.run(10_000_000)
        before = self.bus.sent
        self.agenda.run(20_000_000)
        self.assertLessEqual(self.bus.sent - before, 10 * len(hosts))
