# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Run Nova 33's functional tests with threads, as those of Nova 34 run.

They are made for eventlet, which the agent's tests in the same process forbid.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import fixtures
from nova.tests import fixtures as nova_fixtures
from nova.tests.fixtures import notifications
from oslo_db.sqlalchemy import enginefacade


class NovaThreads(fixtures.Fixture):
    """Adapts the test fixtures of Nova 33; does nothing with Nova 34."""

    def _setUp(self) -> None:
        if hasattr(nova_fixtures, 'DatabaseWriteLock'):
            return
        # Nova 33 looks for the test of a notification among greenlets.
        self.useFixture(
            fixtures.MockPatchObject(
                notifications.FakeVersionedNotifier,
                '_get_sender_test_case_id',
                lambda notifier: notifier.test_case_id,
            )
        )
        self._serialise_transactions()

    def _serialise_transactions(self) -> None:
        """Have one transaction at a time.

        All threads share the connection of a database in memory, and would
        end each other's transactions: "cannot commit - no transaction is
        active". Nova 34 has databases in files.
        """
        manager = enginefacade._TransactionContextManager
        original = manager._transaction_scope
        lock = threading.RLock()

        @contextlib.contextmanager
        def one_at_a_time(self: Any, context: Any) -> Iterator[Any]:
            with lock, original(self, context) as resource:
                yield resource

        self.useFixture(
            fixtures.MockPatchObject(
                manager, '_transaction_scope', one_at_a_time
            )
        )
