# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The connection to ovsdb-server: ovsdbapp's, with a replica that reports."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from ovs import poller
from ovs.db import idl
from ovsdbapp.backend import ovs_idl
from ovsdbapp.backend.ovs_idl import connection as ovsdb_connection

from nova_vhpc.agent.ovsdb import tables
from nova_vhpc.topology import open_vswitch

LOG = logging.getLogger(__name__)

FAILURE_PAUSE_S = 2.0
"""Time between two attempts after one has failed within the library."""


class Replica(idl.Idl):
    """Copy of the registered columns, kept current by the server.

    It reconnects by itself, and keeps the last contents meanwhile.

    :param remote: ``unix:PATH`` or ``tcp:ADDRESS:PORT``.
    :param changed: called after each change of the contents, and after the
        connection was lost or made again, in the thread that calls
        :meth:`run`.
    :ivar current: whether the server keeps the copy current now.
    :ivar error: why the last attempt failed within the library; empty if it
        did not.
    """

    def __init__(self, remote: str, changed: Callable[[], None]) -> None:
        helper = idl.SchemaHelper(schema_json=tables.SCHEMA)
        helper.register_all()
        super().__init__(remote, helper, leader_only=False)
        # The server is on this host: a try every two seconds costs nothing.
        self._session.reconnect.set_backoff(1000, 2000)
        self._changed = changed
        self._reader = tables.Reader()
        self.current = False
        self.error = ''
        self._resume_s = 0.0

    def wait(self, poller: Any) -> None:
        """Let a poller wake up once there is something to do."""
        pause_s = self._resume_s - time.monotonic()
        if pause_s > 0:
            poller.timer_wait(int(pause_s * 1000) + 1)
        else:
            super().wait(poller)

    def run(self) -> bool:
        """Process what the server has sent.

        After a failure it does nothing for a while: ovsdbapp would log it,
        and call again at once.

        :returns: whether the contents changed.
        """
        if time.monotonic() < self._resume_s:
            return False
        error = ''
        try:
            changed = bool(super().run())
        except Exception as problem:
            changed = False
            error = str(problem) or repr(problem)
            self._resume_s = time.monotonic() + FAILURE_PAUSE_S
            self.force_reconnect()
        if error and error != self.error:
            LOG.error('Open vSwitch is not read: %s; will retry', error)
        self.error = error
        current = (
            self.state == self.IDL_S_MONITORING
            and self._session.is_connected()
        )
        if changed or current != self.current:
            if not current:
                # The server's contents replace all rows when it is back.
                self._reader.forget_all()
            self.current = current
            self._changed()
        return changed

    def notify(self, event: str, row: Any, updates: Any = None) -> None:
        """Take note that a row was created, changed or deleted."""
        self._reader.forget(row._table.name, row.uuid)

    def contents(self) -> open_vswitch.OpenVswitch:
        """Return the contents as plain values.

        The caller holds the lock of the connection.
        """
        return self._reader.read(self.tables)


class Connection(ovsdb_connection.Connection):
    """ovsdbapp's connection, whose start does not wait for the server."""

    thread: threading.Thread | None

    def start(self) -> bool:
        """Run the replica and transactions in a thread."""
        self.poller = poller.Poller()
        self.is_running = True
        self.thread = threading.Thread(
            target=self.run, name='vhpc-ovsdb', daemon=True
        )
        self.thread.start()
        return True

    def stop(self, timeout: float | None = None) -> bool:
        """End the thread.

        :param timeout: longest time to wait for it, in seconds.
        :returns: whether the thread has ended.
        """
        self.is_running = False
        if self.thread is None:
            return True
        # A transaction that hangs would make the base class hang, too.
        self.txns.alert_notify()
        self.thread.join(timeout)
        return not self.thread.is_alive()


class Backend(ovs_idl.Backend):
    """What ovsdbapp's commands need of a connection."""

    schema = 'Open_vSwitch'
    # The base class would share one connection among all instances.
    ovsdb_connection = None
