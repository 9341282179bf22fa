# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""This host's ovsdb: read its contents, follow changes, set keys."""

import contextlib
import errno
import logging
import os
import pathlib
import socket
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from oslo_config import cfg
from ovsdbapp import exceptions
from ovsdbapp.backend.ovs_idl import command, transaction

from nova_vhpc.agent import errors
from nova_vhpc.agent.ovsdb import replica
from nova_vhpc.conf import topology as topology_conf
from nova_vhpc.topology import open_vswitch

LOG = logging.getLogger(__name__)

MARKER = 'open-vswitch'
"""File below ``[vhpc_agent] state_path``, see :class:`Ovsdb`."""


class OvsdbError(Exception):
    """ovsdb-server is away, or refuses a write."""


class Ovsdb:
    """The database of this host's Open vSwitch.

    One thread keeps a replica current and reconnects. While the server is
    away, the last contents are kept.

    :param remote: ``unix:PATH`` or ``tcp:ADDRESS:PORT``.
    :param optional: whether no server is expected if a socket of this name
        does not exist.
    :param marker: file that says that an agent of this host has read the
        database, so that a server is expected in any case; None to keep none.
    :param timeout_s: longest time that a write takes, in seconds.
    """

    def __init__(
        self,
        remote: str,
        *,
        optional: bool = False,
        marker: pathlib.Path | None = None,
        timeout_s: float = 5.0,
    ) -> None:
        self.remote = remote
        self._optional = optional
        self._marker = marker
        self._timeout_s = timeout_s
        self._replica = replica.Replica(remote, self._changed)
        self._connection = replica.Connection(self._replica, timeout_s)
        self._backend = replica.Backend(
            self._connection, start=False, auto_index=False
        )
        self._listeners: list[Callable[[], None]] = []
        self._was_current = threading.Event()
        self._contents: open_vswitch.OpenVswitch | None = None
        self._contents_seqno: int | None = None
        self._started = False
        # A write that timed out may still keep the connection's lock.
        self._hangs = False

    def start(self) -> None:
        """Begin to follow the database. Returns at once."""
        if not self._started:
            self._started = True
            self._connection.start()

    def stop(self, timeout_s: float = 1.0) -> None:
        """End the connection.

        :param timeout_s: longest time to wait for it, in seconds.
        """
        if self._started:
            self._connection.stop(timeout_s)

    @property
    def connected(self) -> bool:
        """Whether :meth:`read` returns what the database has now."""
        return (
            self._started and self._replica.current and not self._is_hanging()
        )

    @property
    def awaited(self) -> bool:
        """Whether there is a database that was never read.

        Then it is unknown which bridges of Open vSwitch the host has. A
        socket that the agent may not open, as before it was ever configured
        to, counts only if an agent has read the database before.
        """
        if not self._started or self._was_current.is_set():
            return False
        if not self._optional or self._is_marked():
            return True
        return self._error() not in (errno.ENOENT, errno.EACCES)

    def add_listener(self, changed: Callable[[], None]) -> None:
        """Have a callable called after each change of what is read.

        It is called after the connection was lost or made again, too; in the
        thread that keeps the replica, so it must return at once.
        """
        self._listeners.append(changed)

    def wait(self, timeout_s: float) -> bool:
        """Wait until the database was read for the first time.

        Returns at once if the socket does not exist.

        :param timeout_s: longest time to wait, in seconds.
        :returns: whether it was read.
        """
        end_s = time.monotonic() + timeout_s
        while not self._was_current.wait(0.05):
            if time.monotonic() >= end_s or self._error() == errno.ENOENT:
                return False
        return True

    def read(self) -> open_vswitch.OpenVswitch | None:
        """Return the contents as last known; None before the first time."""
        if not self._was_current.is_set():
            return None
        if self._is_hanging() or not self._connection.lock.acquire(
            timeout=self._timeout_s
        ):
            return self._contents
        try:
            if self._contents_seqno != self._replica.change_seqno:
                self._contents = self._replica.contents()
                self._contents_seqno = self._replica.change_seqno
            return self._contents
        finally:
            self._connection.lock.release()

    def set_external_id(
        self, interface: str, key: str, value: str | None, expected: str | None
    ) -> bool:
        """Set or remove a key of an interface's ``external_ids``.

        :param interface: UUID of the row in the table ``Interface``.
        :param value: the new value; None to remove the key.
        :param expected: value that the key must have, None for none; else
            nothing is written.
        :returns: whether the key has the new value; False if the row is gone
            or another value was there.
        :raises OvsdbError: the server is away or refuses; after a timeout it
            is unknown whether the key was written.
        """
        if not self.connected:
            raise OvsdbError(f'ovsdb-server at {self.remote} is away')
        change = _SetExternalId(
            self._backend, uuid.UUID(interface), key, value, expected
        )
        write = transaction.Transaction(
            self._backend,
            self._connection,
            self._timeout_s,
            check_error=True,
            log_errors=False,
        )
        write.add(change)
        try:
            write.commit()
        except exceptions.TimeoutException as error:
            # The library raises some whose text cannot be had.
            self._hangs = True
            raise OvsdbError(
                f'ovsdb-server at {self.remote} does not answer'
            ) from error
        except (RuntimeError, OSError) as error:
            raise OvsdbError(
                f'ovsdb-server at {self.remote}: {error}'
            ) from error
        return bool(change.result)

    def problem(self) -> str | None:
        """Return in one sentence why the database cannot be read, or None."""
        if self.connected or not self._started:
            return None
        if self._replica.error:
            return (
                f'ovsdb-server at {self.remote} cannot be read '
                f'({self._replica.error}), so that it is unknown what bridges '
                'there are now; will retry'
            )
        if self._was_current.is_set():
            return (
                f'ovsdb-server at {self.remote} is away; the Open vSwitch '
                'bridges last seen there are kept'
            )
        error = self._error()
        reason = os.strerror(error) if error else 'no answer'
        if error == errno.EACCES:
            reason += (
                "; give the agent's unit CapabilityBoundingSet="
                'CAP_DAC_OVERRIDE'
            )
        if self.awaited:
            return (
                f'ovsdb-server at {self.remote} cannot be read ({reason}), '
                'so that it is unknown which Open vSwitch bridges there are; '
                'start it, or correct [vhpc_topology] ovsdb_connection, or '
                'leave that empty if this host has no Open vSwitch (any more)'
            )
        if error == errno.ENOENT:
            return None
        return (
            f'ovsdb-server at {self.remote} cannot be read ({reason}), so '
            'that Open vSwitch bridges are not discovered; see '
            '[vhpc_topology] ovsdb_connection'
        )

    def status(self) -> dict[str, Any]:
        """Return the state of the connection, for the status socket."""
        return {
            'connection': self.remote,
            'connected': self.connected,
            'read': self._was_current.is_set(),
            'error': self._replica.error,
        }

    def _changed(self) -> None:
        if self._replica.current and not self._was_current.is_set():
            self._was_current.set()
            if self._marker is not None:
                # An unwritable state_path is reported by the journal.
                with contextlib.suppress(OSError):
                    self._marker.touch(mode=0o600)
            LOG.info('Reading Open vSwitch from %s', self.remote)
        for changed in self._listeners:
            changed()

    def _is_hanging(self) -> bool:
        """Return whether a write that timed out still waits for the server.

        The library keeps the lock meanwhile. One such wait is enough: with
        hundreds of guests, one for each would take an hour.
        """
        if self._hangs and self._connection.lock.acquire(blocking=False):
            self._connection.lock.release()
            self._hangs = False
        return self._hangs

    def _is_marked(self) -> bool:
        return self._marker is not None and os.path.exists(self._marker)

    def _error(self) -> int:
        """Return why a local server cannot be connected to, 0 if it can.

        The library does not report it.
        """
        scheme, _, path = self.remote.partition(':')
        if scheme != 'unix':
            return 0
        with socket.socket(socket.AF_UNIX) as probe:
            probe.setblocking(False)
            return probe.connect_ex(path)


class _SetExternalId(command.BaseCommand):
    """Sets or removes a key of an interface, if it is as expected."""

    def __init__(
        self,
        backend: replica.Backend,
        interface: uuid.UUID,
        key: str,
        value: str | None,
        expected: str | None,
    ) -> None:
        super().__init__(backend)
        self._interface = interface
        self._key = key
        self._value = value
        self._expected = expected

    def run_idl(self, txn: Any) -> None:
        """Add the change to a transaction; called again after a conflict."""
        self.result = False
        row = self.api.tables['Interface'].rows.get(self._interface)
        if row is None:
            return
        # Another client's change in between makes the server refuse.
        row.verify('external_ids')
        present = row.external_ids.get(self._key)
        if present != self._value:
            if present != self._expected:
                return
            if self._value is None:
                row.delkey('external_ids', self._key)
            else:
                row.setkey('external_ids', self._key, self._value)
        self.result = True


def make_ovsdb(conf: cfg.ConfigOpts) -> Ovsdb | None:
    """Return the connection that ``[vhpc_topology]`` configures, or None.

    :param conf: with the groups ``vhpc_topology`` and ``vhpc_agent``.

    :raises ConfigError: the option's value is invalid.
    """
    try:
        remote = conf.vhpc_topology.ovsdb_connection
    except ValueError as error:
        raise errors.ConfigError(
            f'[vhpc_topology]ovsdb_connection: {error}'
        ) from None
    options = conf.vhpc_agent
    marker = pathlib.Path(options.state_path, MARKER)
    if not remote:
        if not options.dry_run:
            with contextlib.suppress(OSError):
                marker.unlink(missing_ok=True)
        return None
    return Ovsdb(
        remote,
        optional=remote == topology_conf.DEFAULT_OVSDB,
        marker=None if options.dry_run else marker,
    )
