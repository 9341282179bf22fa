# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``nova-vhpc-agent --restore``: restores all domains without a daemon."""

import dataclasses
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import libvirt

from nova_vhpc.agent import errors, host_lock
from nova_vhpc.agent.journal import store
from nova_vhpc.agent.libvirt import connection
from nova_vhpc.agent.ovsdb import connection as ovsdb_connection
from nova_vhpc.agent.restore import recovery
from nova_vhpc.agent.uplinks.binders import base
from nova_vhpc.linux import qemu_process

LOG = logging.getLogger(__name__)

CONNECT_SECONDS = 30.0
"""Longest time to wait for libvirt."""

_PERMANENT = (
    libvirt.VIR_ERR_NO_SUPPORT,
    libvirt.VIR_ERR_NO_CONNECT,
    libvirt.VIR_ERR_INVALID_ARG,
)
"""Error codes that an invalid URI causes; waiting does not help."""

CALL_SECONDS = 45.0
"""Longest time in which no domain is finished; libvirt itself gives up on a
domain that hangs after 30 s."""

THREADS = 4
"""Domains restored at a time, so that one that hangs delays no other. libvirtd
serves five calls of one client at a time."""

RETRY_SECONDS = 10.0
"""Time for which domains that libvirt refuses to restore are retried: a
libvirtd that was just restarted lists domains whose control groups it does not
know yet."""

RETRY_PAUSE_SECONDS = 0.5

OVSDB_SECONDS = 5.0
"""Longest time to wait for Open vSwitch, if there is anything to restore."""


@dataclasses.dataclass(slots=True)
class Summary:
    """Outcome for all domains of a host.

    :ivar restored: UUIDs of domains that were restored.
    :ivar gone: UUIDs of domains that do not run any more.
    :ivar failed: reasons for failures, by name of the domain.
    :ivar refused: whether libvirt answered for some of the failed domains, so
        that a retry may help.
    """

    restored: list[str] = dataclasses.field(default_factory=list)
    gone: list[str] = dataclasses.field(default_factory=list)
    failed: dict[str, str] = dataclasses.field(default_factory=dict)
    refused: bool = False

    def text(self) -> str:
        """Return the summary in one line, for the log."""
        line = (
            f'{len(self.restored)} restored, {len(self.gone)} gone, '
            f'{len(self.failed)} failed'
        )
        for name, reason in sorted(self.failed.items()):
            line += f'; {name}: {reason}'
        return line


class HostRestorer:
    """Restores every domain of a libvirt daemon, once."""

    def __init__(self, restorer: recovery.Restorer) -> None:
        self._restorer = restorer
        self._summary = Summary()
        self._journalled: frozenset[str] = frozenset()
        self._pending: queue.SimpleQueue[tuple[str, str, Any]] = (
            queue.SimpleQueue()
        )
        self._done: queue.SimpleQueue[str] = queue.SimpleQueue()

    def clean(self, conn: Any) -> Summary:
        """Restore all domains; a domain that fails is in the summary.

        :raises libvirt.libvirtError: the domains cannot be listed.
        """
        self._journalled = frozenset(self._restorer.journal.uuids())
        waiting: dict[str, str] = {}
        for domain in conn.listAllDomains(
            libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE
        ):
            uuid, name = domain.UUIDString(), domain.name()
            waiting[uuid] = name
            self._pending.put((uuid, name, domain))
        not_running = self._journalled - waiting.keys()
        connection.ConnectionWakeup(lambda: conn, lambda: bool(waiting)).wake()
        for _ in range(min(THREADS, len(waiting))):
            # Daemon threads: unlike an executor's, the exit does not wait for
            # them.
            threading.Thread(target=self._work, daemon=True).start()
        while waiting:
            try:
                del waiting[self._done.get(timeout=CALL_SECONDS)]
            except queue.Empty:
                break
        hanging = dict(waiting)
        waiting.clear()
        # A copy: a thread that hangs may still finish and change the original.
        summary = dataclasses.replace(
            self._summary,
            restored=list(self._summary.restored),
            failed={
                **self._summary.failed,
                **dict.fromkeys(hanging.values(), 'libvirt does not answer'),
            },
        )
        self._forget({*not_running, *self._summary.gone}, summary)
        return summary

    def _work(self) -> None:
        while True:
            try:
                uuid, name, domain = self._pending.get_nowait()
            except queue.Empty:
                return
            try:
                self._clean_one(domain, uuid)
            except Exception as error:
                # Whatever happens to one domain, the others are restored.
                if isinstance(
                    error, libvirt.libvirtError
                ) and connection.has_ended(domain, error):
                    self._summary.gone.append(uuid)
                else:
                    self._summary.failed[name] = str(error) or repr(error)
                    self._summary.refused = True
            self._done.put(uuid)

    def _clean_one(self, domain: Any, uuid: str) -> None:
        has_record = uuid in self._journalled
        if not has_record and store.METADATA_URI not in domain.XMLDesc(0):
            return
        outcome = self._restorer.recover(domain)
        if outcome is not recovery.Outcome.NOTHING:
            self._summary.restored.append(uuid)

    def _forget(self, uuids: set[str], summary: Summary) -> None:
        """Remove the records of domains that do not run any more."""
        summary.gone = []
        for uuid in sorted(uuids):
            if self._restorer.processes.find(uuid):
                summary.failed[uuid] = (
                    'it runs, but this libvirt does not know it; is '
                    '[vhpc_agent]libvirt_uri right?'
                )
                continue
            self._restorer.forget(uuid)
            summary.gone.append(uuid)


def restore_host(conf: Any) -> int:
    """Restore all domains and NICs of this host.

    :returns: exit status: 0 if all have their original settings, else 1.
    :raises AgentError: an agent is running.
    """
    options = conf.vhpc_agent
    journal = store.Journal(options.state_path)
    lock = host_lock.Lock(options.run_path, journal.path, options.libvirt_uri)
    lock.acquire()
    try:
        nics = NicRestorer(conf)
        try:
            return _restore(conf, journal, nics)
        finally:
            nics.stop()
    finally:
        lock.release()


class NicRestorer:
    """Restores the NICs of all servers of this host.

    Every installed binder takes part, also if ``bind_uplinks`` or the binder
    was turned off since. Options that are invalid are reported, and keep
    nothing else from being restored.

    :param conf: with the groups ``vhpc_agent`` and ``vhpc_topology``.
    """

    def __init__(self, conf: Any) -> None:
        self._problems: list[str] = []
        self._ovsdb: ovsdb_connection.Ovsdb | None = None
        try:
            self._ovsdb = ovsdb_connection.make_ovsdb(conf)
        except errors.ConfigError as error:
            self._problems.append(str(error))
        self._binders, problems = base.load_all(conf, self._ovsdb)
        self._restored: set[str] = set()
        self._has_failed = False
        if not self._binders.records() and not problems:
            # Nothing is left on the host: no option matters.
            self._problems.clear()
        self._problems += problems

    def restore(self, libvirt: Callable[[], Any]) -> dict[str, str]:
        """Restore all NICs that are not restored yet.

        :param libvirt: returns libvirt's connection, or raises libvirtError:
            not every binder needs it.
        :returns: reasons for failures, by UUID of the server, or what else
            has failed.
        """
        before = self._binders.records()
        if self._ovsdb is not None and before:
            self._ovsdb.start()
            if not self._ovsdb.connected:
                self._ovsdb.wait(OVSDB_SECONDS)
        failures = self._binders.restore_all(libvirt)
        self._restored |= before.keys() - self._binders.records().keys()
        failures.update(
            (f'binder {number}', problem)
            for number, problem in enumerate(self._problems, 1)
        )
        self._has_failed = bool(failures)
        return failures

    def report(self) -> None:
        """Log what was restored; and why Open vSwitch was not, if so."""
        if self._restored:
            LOG.info('NICs of %d servers are restored', len(self._restored))
        ovsdb = self._ovsdb
        # Not asked at all if there was nothing to restore.
        if self._has_failed and ovsdb is not None and ovsdb.problem():
            LOG.error(
                'ovsdb-server at %s does not answer, so that NICs in Open '
                'vSwitch are left as they are: start it, or correct '
                '[vhpc_topology] ovsdb_connection, then run nova-vhpc-agent '
                '--restore again',
                ovsdb.remote,
            )

    def stop(self) -> None:
        """End the connection to Open vSwitch."""
        if self._ovsdb is not None:
            self._ovsdb.stop()


def _restore(conf: Any, journal: store.Journal, nics: NicRestorer) -> int:
    """Restore all domains and NICs; return the exit status."""
    uri = conf.vhpc_agent.libvirt_uri
    # What needs no libvirt does not wait for it.
    nics.restore(_no_libvirt)
    connection.start_event_loop()
    conn = _wait_for(uri)
    if conn is None:
        failures = nics.restore(_no_libvirt)
        nics.report()
        LOG.error(
            'libvirt at %s does not answer; no domain is restored, %d servers '
            'are in the journal',
            uri,
            len(journal.uuids()),
        )
        if failures:
            LOG.error('Restore: %s', Summary(failed=failures).text())
        return 1
    restorer = recovery.Restorer(journal, qemu_process.make_processes(conf))
    try:
        summary = _clean(
            conn, uri, restorer, lambda conn: nics.restore(lambda: conn)
        )
    except libvirt.libvirtError as error:
        LOG.error('libvirt at %s: %s', uri, error)
        return 1
    finally:
        nics.report()
    (LOG.error if summary.failed else LOG.info)('Restore: %s', summary.text())
    return 1 if summary.failed else 0


def _no_libvirt() -> Any:
    raise libvirt.libvirtError('libvirt does not answer')


def _clean(
    conn: Any,
    uri: str,
    restorer: recovery.Restorer,
    restore_nics: Callable[[Any], dict[str, str]],
) -> Summary:
    """Restore all domains and NICs; retry while libvirt refuses some.

    libvirtd may just be restarting, even twice, as in a package upgrade.

    :param uri: URI for a new connection, if this one is lost.
    :param restore_nics: restores all NICs, and returns reasons for failures
        by UUID.
    :raises libvirt.libvirtError: the domains cannot be listed.
    """
    end_s = time.monotonic() + RETRY_SECONDS
    earlier = Summary()
    while True:
        try:
            summary = HostRestorer(restorer).clean(conn)
        except libvirt.libvirtError:
            if time.monotonic() >= end_s:
                raise
        else:
            # A set, because a domain whose record only a newer agent can
            # remove is restored in each round.
            summary.restored = list({*earlier.restored, *summary.restored})
            summary.gone = list({*earlier.gone, *summary.gone})
            earlier = summary
            nic_failures = restore_nics(conn)
            if (
                not (summary.refused or nic_failures)
                or time.monotonic() >= end_s
            ):
                summary.failed.update(nic_failures)
                return summary
        time.sleep(RETRY_PAUSE_SECONDS)
        if not conn.isAlive():
            conn = _wait_for(uri) or conn


def _wait_for(uri: str) -> Any:
    """Return a connection to libvirt; None if time runs out."""
    end_s = time.monotonic() + CONNECT_SECONDS
    is_logged = False
    while True:
        try:
            conn = connection.open_within(uri, end_s - time.monotonic())
            conn.setKeepAlive(
                connection.KEEPALIVE_INTERVAL_S, connection.KEEPALIVE_COUNT
            )
            return conn
        except libvirt.libvirtError as error:
            is_permanent = error.get_error_code() in _PERMANENT
            # The time left is too short for another attempt.
            if is_permanent or end_s - time.monotonic() <= RETRY_PAUSE_SECONDS:
                LOG.error('%s', error)
                return None
            if not is_logged:
                is_logged = True
                LOG.warning(
                    'libvirt at %s: %s; will retry for %d s',
                    uri,
                    error,
                    CONNECT_SECONDS,
                )
            time.sleep(RETRY_PAUSE_SECONDS)
