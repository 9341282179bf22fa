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


"""Which virtual cluster a server of this host belongs to.

Nova's API is the truth, a groups file stands above it, and notifications
are no more than a hint to ask again. When Nova is away, what it said last
is kept, and its age is shown.
"""

import logging
import random
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from oslo_config import cfg

from nova_vhpc.agent.clusters import membership, notifications, nova
from nova_vhpc.clients import credentials

LOG = logging.getLogger(__name__)

_MAX_BACK_OFF_S = 120.0
_FILE_POLL_S = 5.0
_ASK_FOR = 5
_ASK_FOR_MOST = 1000
_TICK_S = 1.0
"""A tick asks for all servers that run here, and takes less."""
_TICKS_S = 30.0
"""The next one comes before: control periods are of ten seconds at most."""


class Groups:
    """Asks Nova in a thread of its own; answers from memory.

    :param conf: with the group ``vhpc_nova``.
    :param host: name of this host as Nova knows it (``[DEFAULT] host``).
    :param period_s: between two ticks, which ask for all that run here.
    """

    def __init__(
        self, conf: cfg.ConfigOpts, host: str, period_s: float = 0.0
    ) -> None:
        self._conf = conf
        self._options = conf.vhpc_nova
        self._host = host
        # While a tick is under way, some have been asked for by the last one.
        self._round_s = period_s + _TICK_S
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._hints: notifications.GroupHints | None = None
        self._nova = nova.NovaServers(conf, host)
        # Replaced as a whole, since every tick asks for every VM and must
        # not wait for a lock.
        self._told = nova.Answer()
        self._missed: frozenset[str] = frozenset()
        self._asked_for: dict[str, int] = {}
        self._running_s: dict[str, float] = {}
        self._filed: Mapping[str, str] = {}
        self._file_stamp: tuple[float, int] | None = None
        self._state = 'off'
        self._detail = ''
        self._heard_s: float | None = None

    @property
    def uses_nova(self) -> bool:
        """Whether credentials for the Nova API are configured."""
        return credentials.given(self._conf, 'vhpc_nova')

    def start(self) -> None:
        """Start asking, if there is anybody to ask."""
        if self._thread is not None or not (
            self.uses_nova or self._options.groups_file
        ):
            return
        self._stop.clear()
        self._read_file()
        self._enter('starting' if self.uses_nova else 'file', '')
        self._thread = threading.Thread(
            target=self._run, name='vhpc-groups', daemon=True
        )
        self._thread.start()
        if self.uses_nova and self._options.notifications:
            self._hints = notifications.GroupHints(
                self._conf, self._host, self._wake.set
            )
            self._hints.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stop asking. What is known stays known."""
        self._stop.set()
        self._wake.set()
        if self._hints is not None:
            self._hints.stop()
            self._hints = None
        if self._thread is not None:
            self._thread.join(timeout_s)
            self._thread = None

    def cluster_of(
        self,
        server_uuid: str,
        flavor_cluster: str | None = None,
        project: str | None = None,
    ) -> str | None:
        """Id of the virtual cluster of a server; None without one.

        Answers at once. A server that Nova has not told of yet makes the
        thread ask soon.

        :param flavor_cluster: ``vhpc:cluster`` from the flavor as the
            domain XML has it, used while Nova says nothing of the server.
        :param project: the server's project, from the domain XML too.
        """
        told = self._told
        known = server_uuid in told.servers
        if known:
            self._running_s[server_uuid] = time.monotonic()
        filed = self._filed.get(server_uuid)
        if filed is not None:
            return filed
        if not known:
            self._ask_for(server_uuid)
            if flavor_cluster is not None:
                return membership.scoped(flavor_cluster, project)
        return told.clusters.get(server_uuid)

    @property
    def migrating(self) -> frozenset[str]:
        """Servers that Nova is about to migrate away, when last asked."""
        return self._told.migrating

    def status(self) -> dict[str, Any]:
        """What is known and how old it is, in values that JSON takes."""
        with self._lock:
            at = self._heard_s
            merged = {**self._told.clusters, **self._filed}
            state, detail = self._state, self._detail
        counts: dict[str, int] = {}
        for cluster in merged.values():
            counts[cluster] = counts.get(cluster, 0) + 1
        return {
            'state': state,
            'detail': detail,
            'age_s': None if at is None else round(time.monotonic() - at, 1),
            'servers': len(merged),
            'clusters': counts,
        }

    def _ask_for(self, server_uuid: str) -> None:
        """Ask soon, but not for ever for a server that Nova never names."""
        asked = self._asked_for.get(server_uuid, 0)
        if self.uses_nova and asked < _ASK_FOR:
            self._wake.set()
            self._asked_for.setdefault(server_uuid, 0)

    def refresh(self) -> None:
        """Ask Nova once, in the caller's thread.

        :raises NovaError: when Nova is away or refuses.
        """
        told, self._missed = self._nova.ask().without_forgetting(
            self._told, self._running_here()
        )
        with self._lock:
            self._told = told
            if not self._missed:
                self._heard_s = time.monotonic()
        for server in list(self._asked_for):
            if server in told.servers or len(self._asked_for) > _ASK_FOR_MOST:
                self._asked_for.pop(server, None)
            else:
                self._asked_for[server] += 1

    def _running_here(self) -> frozenset[str]:
        """Those that the last tick has asked for."""
        # In one step: ticks add to it meanwhile.
        asked_s = self._running_s.copy()
        since_s = max(
            max(asked_s.values(), default=0.0) - self._round_s,
            time.monotonic() - _TICKS_S,
        )
        for server in asked_s:
            if asked_s[server] < since_s:
                self._running_s.pop(server, None)
        return frozenset(
            server for server in asked_s if asked_s[server] >= since_s
        )

    def _run(self) -> None:
        failures = 0
        asked_s = due_s = 0.0
        while not self._stop.is_set():
            self._read_file()
            now_s = time.monotonic()
            if self.uses_nova:
                soon_s = asked_s + self._options.min_interval
                if now_s >= due_s or (
                    self._wake.is_set() and not failures and now_s >= soon_s
                ):
                    self._wake.clear()
                    asked_s = now_s
                    failures = 0 if self._ask() else failures + 1
                    due_s = time.monotonic() + self._pause_s(failures)
                    continue
            self._sleep(now_s, asked_s, due_s, failures)

    def _sleep(
        self, now_s: float, asked_s: float, due_s: float, failures: int
    ) -> None:
        until_s = now_s + _FILE_POLL_S
        if self.uses_nova:
            until_s = min(until_s, due_s)
        if not self._wake.is_set():
            self._wake.wait(max(0.0, until_s - now_s))
            return
        if not failures:
            until_s = min(until_s, asked_s + self._options.min_interval)
        # The hint is known; only the time to follow it has not come yet.
        self._stop.wait(max(0.0, until_s - now_s))

    def _pause_s(self, failures: int) -> float:
        if not failures:
            return float(self._options.poll_interval)
        back_off_s = min(_MAX_BACK_OFF_S, 2.0 ** min(failures - 1, 10))
        return back_off_s * random.uniform(0.75, 1.25)

    def _ask(self) -> bool:
        missed = self._missed
        try:
            self.refresh()
        except nova.NovaError as error:
            self._nova.disconnect()
            if self._enter('nova-away', str(error)):
                LOG.warning(
                    'Nova does not tell the groups of this host; the last '
                    'known ones stay in force: %s',
                    error,
                )
            return False
        except Exception as error:
            # A daemon's thread must outlive what nobody thought of.
            if self._state != 'failed':
                LOG.exception('Reading groups failed; it will be tried again')
            self._enter('failed', repr(error))
            return False
        # Once it may be one that has just been deleted.
        missed &= self._missed
        if missed:
            detail = (
                f'Nova says nothing of {len(missed)} servers that run '
                "here; is their cell's database away?"
            )
            if self._enter('partial', detail):
                LOG.warning(
                    'The last known groups of some servers stay in force: %s',
                    detail,
                )
        elif self._enter('fresh', ''):
            LOG.info(
                'Nova tells the groups of this host: %d servers in %d '
                'virtual clusters',
                len(self._told.clusters),
                len(set(self._told.clusters.values())),
            )
        return True

    def _read_file(self) -> None:
        name = self._options.groups_file
        if not name:
            return
        try:
            stat = Path(name).stat()
            stamp = (stat.st_mtime, stat.st_size)
            if stamp == self._file_stamp:
                return
            filed = membership.read_file(
                yaml.safe_load(Path(name).read_text('utf-8'))
            )
        except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
            if self._file_stamp != (0.0, 0):
                LOG.warning(
                    '[vhpc_nova] groups_file %s cannot be used; the last '
                    'known groups stay in force: %s',
                    name,
                    ' '.join(str(error).split()),
                )
            self._file_stamp = (0.0, 0)
            return
        self._file_stamp = stamp
        LOG.info('Read %d servers from %s', len(filed), name)
        with self._lock:
            self._filed = filed

    def _enter(self, state: str, detail: str) -> bool:
        with self._lock:
            changed = state != self._state
            self._state, self._detail = state, detail
        return changed
