# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""``nova-vhpc-agent --restore``: the whole host put back, without a daemon."""

import dataclasses
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import libvirt

from nova_vhpc.agent import host_lock
from nova_vhpc.agent.journal import domain_metadata, store
from nova_vhpc.agent.libvirt import connection, patient_open, wakeup
from nova_vhpc.agent.restore import recovery
from nova_vhpc.agent.uplinks import plugger
from nova_vhpc.linux import qemu_process

LOG = logging.getLogger(__name__)

CONNECT_SECONDS = 30.0
"""How long it waits for libvirt."""

_NEVER = (libvirt.VIR_ERR_NO_SUPPORT, libvirt.VIR_ERR_NO_CONNECT)
"""What a URI that is wrong is answered with, however long one waits."""

CALL_SECONDS = 45.0
"""How long it waits for any VM to be done with: libvirt itself gives up on one
that hangs after 30 s."""

THREADS = 4
"""VMs that are put back at a time: one that hangs holds up no other. libvirtd
serves five calls of one client at a time."""


RETRY_SECONDS = 10.0
"""How long VMs are tried again that libvirt refuses to put back: one that was
just restarted lists VMs whose control groups it does not know yet."""

RETRY_PAUSE_SECONDS = 0.5


@dataclasses.dataclass(slots=True)
class Summary:
    """What became of the VMs of a host.

    :ivar refused: libvirt did answer for some of those that failed.
    """

    restored: list[str] = dataclasses.field(default_factory=list)
    gone: list[str] = dataclasses.field(default_factory=list)
    failed: dict[str, str] = dataclasses.field(default_factory=dict)
    refused: bool = False

    def text(self) -> str:
        """One line for people."""
        line = (
            f'{len(self.restored)} restored, {len(self.gone)} gone, '
            f'{len(self.failed)} failed'
        )
        for name, reason in sorted(self.failed.items()):
            line += f'; {name}: {reason}'
        return line


class HostRestorer:
    """Puts every domain of a libvirt back.

    :param restorer: puts one back.
    """

    def __init__(self, restorer: recovery.Restorer) -> None:
        self._restorer = restorer
        self._summary = Summary()
        self._journalled: frozenset[str] = frozenset()
        self._todo: queue.SimpleQueue[tuple[str, str, Any]] = (
            queue.SimpleQueue()
        )
        self._done: queue.SimpleQueue[str] = queue.SimpleQueue()

    def clean(self, conn: Any) -> Summary:
        """Put all back; never raises for one.

        :raises libvirt.libvirtError: the domains cannot be listed.
        """
        self._journalled = frozenset(self._restorer.journal.uuids())
        waiting: dict[str, str] = {}
        for domain in conn.listAllDomains(
            libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE
        ):
            uuid, name = domain.UUIDString(), domain.name()
            waiting[uuid] = name
            self._todo.put((uuid, name, domain))
        left = self._journalled - waiting.keys()
        wakeup.Nudge(lambda: conn, lambda: bool(waiting)).wake()
        for _ in range(min(THREADS, len(waiting))):
            # Not kept waiting for at the end, unlike an executor's.
            threading.Thread(target=self._work, daemon=True).start()
        while waiting:
            try:
                del waiting[self._done.get(timeout=CALL_SECONDS)]
            except queue.Empty:
                break
        late = dict(waiting)
        waiting.clear()
        # Those that hang may still end; what is told is told.
        summary = dataclasses.replace(
            self._summary,
            restored=list(self._summary.restored),
            failed={
                **self._summary.failed,
                **dict.fromkeys(late.values(), 'libvirt does not answer'),
            },
        )
        self._forget({*left, *self._summary.gone}, summary)
        return summary

    def _work(self) -> None:
        while True:
            try:
                uuid, name, domain = self._todo.get_nowait()
            except queue.Empty:
                return
            try:
                self._clean_one(domain, uuid)
            except Exception as error:
                # Whatever is wrong with one, the others are put back.
                if isinstance(
                    error, libvirt.libvirtError
                ) and connection.has_ended(domain, error):
                    self._summary.gone.append(uuid)
                else:
                    self._summary.failed[name] = str(error) or repr(error)
                    self._summary.refused = True
            self._done.put(uuid)

    def _clean_one(self, domain: Any, uuid: str) -> None:
        known = uuid in self._journalled
        if not known and domain_metadata.URI not in domain.XMLDesc(0):
            return
        outcome = self._restorer.clean(domain)
        if outcome is not recovery.Outcome.NOTHING:
            self._summary.restored.append(uuid)

    def _forget(self, uuids: set[str], summary: Summary) -> None:
        """Drop the records of domains that do not run any more."""
        summary.gone = []
        for uuid in sorted(uuids):
            if self._restorer.host.find(uuid):
                summary.failed[uuid] = (
                    'it runs, but this libvirt does not know it; is '
                    '[vhpc_agent]libvirt_uri right?'
                )
                continue
            self._restorer.forget(uuid)
            summary.gone.append(uuid)


def restore_host(conf: Any) -> int:
    """``nova-vhpc-agent --restore``: put all back, then end.

    :returns: 0 if everything is as it was, 1 if not.
    :raises AgentError: the agent itself runs.
    """
    options = conf.vhpc_agent
    records = store.Journal(options.state_path)
    guard = host_lock.Lock(options.run_path, records.path)
    guard.acquire()
    connection.start_event_loop()
    conn = _wait_for(options.libvirt_uri)
    if conn is None:
        LOG.error(
            'libvirt at %s does not answer; nothing is restored, %d VMs are '
            'in the journal',
            options.libvirt_uri,
            len(records.uuids()),
        )
        guard.release()
        return 1
    restorer = recovery.Restorer(records, qemu_process.make_processes(conf))
    try:
        summary = _clean(
            conn,
            options.libvirt_uri,
            restorer,
            # Also when the option was turned off since.
            plugger.make_plugger(conf).restore_all,
        )
    except libvirt.libvirtError as error:
        LOG.error('libvirt at %s: %s', options.libvirt_uri, error)
        return 1
    finally:
        guard.release()
    (LOG.error if summary.failed else LOG.info)('Restore: %s', summary.text())
    return 1 if summary.failed else 0


def _clean(
    conn: Any,
    uri: str,
    restorer: recovery.Restorer,
    restore_nics: Callable[[Any], dict[str, str]],
) -> Summary:
    """Put all VMs back; try those again that are refused.

    libvirtd may just be started anew, once more: as in an upgrade.

    :param restore_nics: puts all NICs back, and says what went wrong by uuid.
    :returns: what became of them.
    :raises libvirt.libvirtError: the domains cannot be listed.
    """
    end = time.monotonic() + RETRY_SECONDS
    before = Summary()
    while True:
        try:
            summary = HostRestorer(restorer).clean(conn)
        except libvirt.libvirtError:
            if time.monotonic() >= end:
                raise
        else:
            # One that a newer agent keeps a record of is told of each time.
            summary.restored = list({*before.restored, *summary.restored})
            summary.gone = list({*before.gone, *summary.gone})
            before = summary
            left = restore_nics(conn)
            if not (summary.refused or left) or time.monotonic() >= end:
                summary.failed.update(left)
                return summary
        time.sleep(RETRY_PAUSE_SECONDS)
        if not conn.isAlive():
            conn = _wait_for(uri) or conn


def _wait_for(uri: str) -> Any:
    end = time.monotonic() + CONNECT_SECONDS
    told = False
    while True:
        try:
            conn = patient_open.open_within(uri, end - time.monotonic())
            conn.setKeepAlive(
                connection.KEEPALIVE_INTERVAL_S, connection.KEEPALIVE_COUNT
            )
            return conn
        except libvirt.libvirtError as error:
            useless = error.get_error_code() in _NEVER
            # In less time than that nobody can answer, who now refuses.
            if useless or end - time.monotonic() <= RETRY_PAUSE_SECONDS:
                LOG.error('%s', error)
                return None
            if not told:
                told = True
                LOG.warning(
                    'libvirt at %s: %s; tried again for %d s',
                    uri,
                    error,
                    CONNECT_SECONDS,
                )
            time.sleep(RETRY_PAUSE_SECONDS)
