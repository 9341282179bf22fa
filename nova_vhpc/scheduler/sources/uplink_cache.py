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

"""Cached read of the uplink providers in Placement.

nova-scheduler forks its workers after it has built the filters, so
nothing may start before the first request: :func:`for_process` gives each
process its own :class:`UplinkCache`, and a reader starts its daemon thread at
the first request. From then on requests look at the last snapshot; only
after a pause, when it is old, they wait for a read if that is short. The
claim itself, made in Placement, catches stale data, but a plan made of it
is kept.
"""

import os
import re
import threading
import time
from collections.abc import Callable
from typing import Any

from nova.scheduler.client import report
from oslo_log import log as logging

from nova_vhpc.scheduler.sources import snapshot as snapshots
from nova_vhpc.topology import model

LOG = logging.getLogger(__name__)

_IDLE_TURNS = 10
"""Turns without a request after which reads become rare: an idle worker
must not ask Placement for megabytes twice a minute."""

_NOT_YET = re.compile(f'({model.TRAIT_HOST}|{model.STAMP})')
"""In Placement's complaint that it has never heard of these."""

Get = Callable[[str, str], Any]
"""Path and microversion to the decoded body; raises if there is none."""


class ReadError(Exception):
    """Placement answered, but not with what was asked for."""


class UplinkCache:
    """Keeps the last snapshot of one process fresh.

    :param conf: a ConfigOpts with ``[vhpc_scheduler]``; read at every
        turn, so that the options may change at run time.
    :param get: reads one path of Placement.
    """

    def __init__(self, conf: Any, get: Get | None = None) -> None:
        self._conf = conf
        self._get = get or _get
        self._lock = threading.Lock()
        self._first = threading.Event()
        self._ended = threading.Condition()
        self._wake = threading.Event()
        self._turn = 0
        self._reading_since_s: float | None = None
        self._asked_s = 0.0
        self._first_asked_s: float | None = None
        self._names: dict[str, tuple[str, str]] = {}
        self._snapshot: snapshots.Snapshot | None = None
        self._failure: str | None = None
        self.read_s = 0.0

    def snapshot(self) -> tuple[snapshots.Snapshot | None, str | None]:
        """The last snapshot, and why there is none that may be used.

        Before the first read of the process has ended, all requests
        together wait no longer than ``first_read_timeout``: a read that
        hangs is not to hold up every request after the first. So does,
        up to ``fresh_read_timeout``, who comes after a pause.
        """
        before = self.latest()
        group = self._conf.vhpc_scheduler
        if before is None:
            if self._first_asked_s is None:
                self._first_asked_s = self._asked_s
            waited_s = time.monotonic() - self._first_asked_s
            self._first.wait(max(0.0, group.first_read_timeout - waited_s))
        elif self._asked_s - before.taken_s > 2 * group.snapshot_ttl:
            # Nobody had asked for long, or a read is due.
            self._wake.set()
            self._renew(group.fresh_read_timeout)
        last = self._snapshot
        if last is None:
            return None, (
                'the uplinks could not be read from Placement: '
                + (self._failure or 'it has not answered yet')
            )
        age_s = time.monotonic() - last.taken_s
        if age_s > group.snapshot_max_age:
            return None, (
                f'the uplinks were last read from Placement {age_s:.0f} s '
                f'ago, snapshot_max_age is {group.snapshot_max_age} s: '
                + (self._failure or 'it does not answer')
            )
        return last, None

    def _renew(self, timeout_s: float) -> None:
        """Wait for the read that is due, if reads are that short."""
        now_s = time.monotonic()
        since_s = self._reading_since_s
        if (
            self._failure is not None
            or self.read_s > timeout_s
            or (since_s is not None and now_s - since_s > timeout_s)
        ):
            return
        with self._ended:
            self._ended.wait_for(lambda: self._is_since(now_s), timeout_s)

    def _is_since(self, then_s: float) -> bool:
        """Whether there is a newer snapshot, or none can be had."""
        last = self._snapshot
        return self._failure is not None or (
            last is not None and last.taken_s >= then_s
        )

    def latest(self) -> snapshots.Snapshot | None:
        """The last snapshot, whatever its age. Never waits."""
        last = self._snapshot
        self._asked_s = time.monotonic()
        self._ensure_thread()
        return last

    def refresh(self) -> None:
        """Read now, in the calling thread; for tests and tools."""
        self._read(self._turn)

    def expire(self) -> None:
        """Let the thread read at once instead of at the next turn."""
        self._wake.set()

    def stop(self) -> None:
        """End the thread after its current read."""
        with self._lock:
            self._turn = -abs(self._turn)
        self._wake.set()

    def _ensure_thread(self) -> None:
        """Start the thread, or a new one if the old one hangs."""
        if self._turn > 0 and not self._hangs():
            return
        with self._lock:
            if self._turn > 0:
                if not self._hangs():
                    return
                self._fail(
                    'a read has taken more than '
                    f'{self._conf.vhpc_scheduler.refresh_timeout} s'
                )
            self._turn = abs(self._turn) + 1
            self._reading_since_s = time.monotonic()
            threading.Thread(
                target=self._run,
                args=(self._turn,),
                name=f'vhpc-uplinks-{self._turn}',
                daemon=True,
            ).start()

    def _hangs(self) -> bool:
        since_s = self._reading_since_s
        return (
            since_s is not None
            and time.monotonic() - since_s
            > self._conf.vhpc_scheduler.refresh_timeout
        )

    def _run(self, turn: int) -> None:
        while turn == self._turn:
            self._reading_since_s = time.monotonic()
            failure = ''
            try:
                self._read(turn)
            except Exception as error:
                # Whatever went wrong, the next turn may do better.
                failure = f'{type(error).__name__}: {error}'
            if failure and turn == self._turn:
                # Here, as oslo.log, which is Nova's, adds to a line the
                # exception that is handled.
                self._fail(failure)
            if turn != self._turn:
                # Given up, and another thread reads: its wakes are not ours.
                return
            self._reading_since_s = None
            self._first.set()
            with self._ended:
                self._ended.notify_all()
            self._wake.wait(self._pause_s())
            self._wake.clear()

    def _pause_s(self) -> float:
        """Seconds to the next read; longer when nobody asks."""
        group = self._conf.vhpc_scheduler
        ttl_s: float = group.snapshot_ttl
        if time.monotonic() - self._asked_s > _IDLE_TURNS * ttl_s:
            return max(ttl_s, float(group.snapshot_max_age) / 2)
        return ttl_s

    def _read(self, turn: int) -> None:
        began_s = time.monotonic()
        body = self._get(snapshots.BULK_READ, snapshots.BULK_READ_VERSION)
        names = self._names
        path = snapshots.names_read(body, names)
        if path is not None:
            named = self._get(path, snapshots.NAMES_READ_VERSION)
            # Hosts of the other kind keep the names they have.
            names = {
                **names,
                **snapshots.parse_names(named['resource_providers']),
            }
        parsed = snapshots.parse(body, names, began_s)
        if turn != self._turn:
            return
        # A name that stays unknown must not cost a second read each turn.
        self._names = {
            uplink.uuid: (uplink.bridge, uplink.nic)
            for host in parsed.hosts.values()
            for uplink in host.uplinks
        }
        self._snapshot = parsed
        self.read_s = time.monotonic() - began_s
        if self._failure is not None:
            LOG.info(
                'Reading the uplinks from Placement works again: %d hosts',
                len(parsed.hosts),
            )
            self._failure = None

    def _fail(self, failure: str) -> None:
        if self._failure is None:
            LOG.warning(
                'Cannot read the uplinks from Placement, the last snapshot '
                'is used for up to %d s: %s',
                self._conf.vhpc_scheduler.snapshot_max_age,
                failure,
            )
        self._failure = failure


_caches: dict[int, UplinkCache] = {}
_caches_lock = threading.Lock()


def for_process(conf: Any) -> UplinkCache:
    """The reader of this process; a forked worker gets one of its own."""
    pid = os.getpid()
    cache = _caches.get(pid)
    if cache is None:
        with _caches_lock:
            cache = _caches.setdefault(pid, UplinkCache(conf))
    return cache


def install(cache: UplinkCache) -> None:
    """Let this process use a reader of one's own; for tools."""
    _caches[os.getpid()] = cache


def reset() -> None:
    """Stop and forget this process's reader; for tests."""
    cache = _caches.pop(os.getpid(), None)
    if cache is not None:
        cache.stop()


def _get(path: str, version: str) -> Any:
    response = report.report_client_singleton().get(path, version=version)
    if response.status_code == 400 and _NOT_YET.search(response.text):
        # The first agent to publish makes trait and resource class.
        return {'provider_summaries': {}}
    if response.status_code != 200:
        raise ReadError(
            f'GET {path} answered {response.status_code}: '
            f'{response.text[:200]}'
        )
    return response.json()
