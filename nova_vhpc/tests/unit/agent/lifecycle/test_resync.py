# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""All domains are reconciled periodically, without events."""

import dataclasses
import tempfile
import threading
import types

from oslotest import base

from nova_vhpc.agent import context
from nova_vhpc.agent.guests import registry
from nova_vhpc.agent.journal import store
from nova_vhpc.agent.lifecycle import resync
from nova_vhpc.tests.unit import waiting
from nova_vhpc.tests.unit.agent.guests import test_guest, test_registry
from nova_vhpc.tests.unit.agent.journal import test_store
from nova_vhpc.tests.unit.agent.lifecycle import test_events


class Host:
    """A connection with two domains."""

    up = True

    def get(self) -> 'Host':
        return self

    def listAllDomains(self, flags: int) -> list[test_events.Domain]:
        return [test_events.Domain('a'), test_events.Domain('b')]


class ResyncTest(base.BaseTestCase):
    def start(self, period_s: float) -> resync.Resync:
        journal = store.Journal(tempfile.mkdtemp())
        journal.prepare()
        journal.save(test_store.record())
        journal.save(dataclasses.replace(test_store.record(), uuid='u'))
        guests = test_registry.make()
        guests.add(test_guest.make())
        guests.add_unmanaged('gone', (1, 1))
        self.guests = guests
        self.permission = registry.WritePermission(dry_run=False)
        self.enqueued: list[str] = []
        self.forgotten: list[str] = []
        self.retried: list[str] = []
        made = resync.Resync(
            context.HostContext(
                guests, self.permission, Host(), None, journal, None
            ),
            types.SimpleNamespace(reconcile_period=period_s),
            types.SimpleNamespace(
                forget_record=self.forgotten.append,
                retry=self.retried.append,
            ),
            self.enqueued.append,
        )
        made.start()
        self.addCleanup(made.wake)
        self.addCleanup(self.permission.ending.set)
        return made

    def test_all_domains_are_enqueued_periodically(self) -> None:
        self.start(0.02)
        waiting.wait_for(lambda: len(self.enqueued) >= 9)
        self.assertEqual({'a', 'b', 'u'}, set(self.enqueued[:3]))
        self.assertEqual({'a', 'b', 'u'}, set(self.enqueued[3:6]))
        self.assertEqual({'a', 'b', 'u'}, set(self.retried[:3]))
        self.assertIn(test_store.UUID, self.forgotten)
        self.assertFalse(self.guests.is_unmanaged('gone', (1, 1)))

    def test_running_domains_come_before_records_of_stopped_ones(self) -> None:
        """After a power failure there are many, and each takes time."""
        seen: list[int] = []
        made = self.start(1e6)
        made._restore_queue.forget_record = lambda uuid: seen.append(
            len(self.enqueued)
        )
        made.wake()
        waiting.wait_for(lambda: bool(seen))
        self.assertEqual([3], seen)

    def test_record_of_a_guest_is_left_to_its_reconcile(self) -> None:
        """A waiting call about the guest may reach its next run."""
        self.start(0.02)
        waiting.wait_for(lambda: len(self.forgotten) > 1)
        self.assertEqual({test_store.UUID}, set(self.forgotten))

    def test_new_connection_enqueues_all_domains_at_once(self) -> None:
        made = self.start(1e6)
        made.wake()
        waiting.wait_for(lambda: len(self.enqueued) == 3)

    def test_thread_ends_while_it_waits(self) -> None:
        made = self.start(1e6)
        self.permission.ending.set()
        made.wake()
        waiting.wait_for(
            lambda: 'reconcile' not in {t.name for t in threading.enumerate()}
        )
        self.assertEqual([], self.enqueued)
