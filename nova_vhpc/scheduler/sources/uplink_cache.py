# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A cache of the uplink providers in Placement.

nova-scheduler forks its workers after it has built the filters, so no thread
may start before the first request: :func:`for_process` gives each process its
own :class:`UplinkCache`, which starts its daemon thread at the first request.
From then on, requests use the last snapshot. If it is old, because no request
came for a while, a request waits for the next read if reads are short. Stale
data cannot cause a wrong claim, because Placement makes the claim, but it can
cause a bad plan, and a plan is kept.
"""

import os
import re
import threading
import time
from collections.abc import Callable
from typing import Any

from keystoneauth1 import exceptions as ksa_exceptions
from nova.scheduler.client import report
from oslo_log import log as logging

from nova_vhpc.clients import failures
from nova_vhpc.scheduler.sources import snapshot as snapshots
from nova_vhpc.topology import model

LOG = logging.getLogger(__name__)

_PLACE = failures.Place.of_group('placement')

_IDLE_TURNS = 10
"""Reads without a request in between after which reads become rare: an idle
worker must not read megabytes from Placement twice a minute."""

_NOT_YET = re.compile(f'({model.TRAIT_HOST}|{model.STAMP})')
"""Matches Placement's error that the trait or resource class is unknown."""

Get = Callable[[str, str], Any]
"""Reads a path of Placement at a microversion; returns the decoded body."""


class ReadError(Exception):
    """Placement answered with an error."""


class UplinkCache:
    """The last snapshot of one process, and the thread that renews it.

    :param conf: ConfigOpts with ``[vhpc_scheduler]``. The options are read
        again each time, because they may change at run time.
    :param get: function that reads one path of Placement.
    :ivar read_s: duration of the last read, in seconds.
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
        """Return the last snapshot, or None and why none can be used.

        Until the first read of the process has ended, requests wait for it,
        all together at most ``first_read_timeout``: a read that hangs must
        not delay each request anew. The first request after a pause waits
        up to ``fresh_read_timeout`` for a new snapshot.
        """
        before = self.latest()
        group = self._conf.vhpc_scheduler
        if before is None:
            if self._first_asked_s is None:
                self._first_asked_s = self._asked_s
            waited_s = time.monotonic() - self._first_asked_s
            self._first.wait(max(0.0, group.first_read_timeout - waited_s))
        elif self._asked_s - before.taken_s > 2 * group.snapshot_ttl:
            # There was no request for a while, or a read is due.
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
        """Wait for the read that is due, unless reads take longer."""
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
        """Return whether there is a newer snapshot, or reads fail."""
        last = self._snapshot
        return self._failure is not None or (
            last is not None and last.taken_s >= then_s
        )

    def latest(self) -> snapshots.Snapshot | None:
        """Return the last snapshot, whatever its age, without waiting."""
        last = self._snapshot
        self._asked_s = time.monotonic()
        self._ensure_thread()
        return last

    def get(self, path: str, version: str) -> Any:
        """Read a path of Placement, and return the decoded body.

        :raises ReadError: Placement answered with an error.
        """
        return self._get(path, version)

    def refresh(self) -> None:
        """Read in the calling thread; for tests and tools."""
        self._read(self._turn)

    def expire(self) -> None:
        """Make the thread read at once instead of when the read is due."""
        self._wake.set()

    def stop(self) -> None:
        """End the thread after its current read."""
        with self._lock:
            self._turn = -abs(self._turn)
        self._wake.set()

    def _ensure_thread(self) -> None:
        """Start the thread, or another one if its read hangs."""
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
                # Placement may be back at the next read.
                failure = _failure(error)
            if failure and turn == self._turn:
                # Outside of the except clause: in it, Nova's log format
                # would append the exception to the line once more.
                self._fail(failure)
            if turn != self._turn:
                # Another thread replaced this one while its read hung; the
                # wake event now belongs to that thread.
                return
            self._reading_since_s = None
            self._first.set()
            with self._ended:
                self._ended.notify_all()
            self._wake.wait(self._pause_s())
            self._wake.clear()

    def _pause_s(self) -> float:
        """Return the seconds until the next read; more without requests."""
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
            # The answer covers the kinds of new uplinks only.
            names = {
                **names,
                **snapshots.parse_names(named['resource_providers']),
            }
        parsed = snapshots.parse(body, names, began_s)
        if turn != self._turn:
            return
        # Names are kept, because reading them anew each time would take 0.25 s
        # more than the 0.31 s of the bulk read (1,000 hosts, 4,000 uplinks,
        # Placement on SQLite). The uuid of an uplink without a valid name is
        # kept as well, so that it does not cause a read each time.
        self._names = {
            uplink.uuid: (uplink.bridge, uplink.nic)
            for host in parsed.hosts.values()
            for uplink in host.uplinks
        } | {
            uplink.uuid: ('', uplink.device)
            for host in parsed.hosts.values()
            for uplink in host.neutron_uplinks
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
                'Cannot read the uplinks from Placement; the last snapshot '
                'is used until it is %d s old: %s',
                self._conf.vhpc_scheduler.snapshot_max_age,
                failure,
            )
        self._failure = failure


_caches: dict[int, UplinkCache] = {}
_caches_lock = threading.Lock()


def for_process(conf: Any) -> UplinkCache:
    """Return the cache of this process; a forked worker gets its own."""
    pid = os.getpid()
    cache = _caches.get(pid)
    if cache is None:
        with _caches_lock:
            cache = _caches.setdefault(pid, UplinkCache(conf))
    return cache


def install(cache: UplinkCache) -> None:
    """Make this process use the given cache; for tools and tests."""
    _caches[os.getpid()] = cache


def reset() -> None:
    """Stop and drop the cache of this process; for tests."""
    cache = _caches.pop(os.getpid(), None)
    if cache is not None:
        cache.stop()


def _failure(error: Exception) -> str:
    """Return in one line why a read failed."""
    if isinstance(error, ksa_exceptions.ClientException):
        return failures.reason(error, _PLACE)
    return f'{type(error).__name__}: {error}'


def _get(path: str, version: str) -> Any:
    response = report.report_client_singleton().get(path, version=version)
    if response.status_code == 400 and _NOT_YET.search(response.text):
        # The first agent that publishes creates trait and resource class.
        return {'provider_summaries': {}}
    if response.status_code != 200:
        raise ReadError(
            f'GET {path} answered {response.status_code}: '
            + (
                failures.refusal(response.status_code, _PLACE)
                or response.text[:200]
            )
        )
    return response.json()
