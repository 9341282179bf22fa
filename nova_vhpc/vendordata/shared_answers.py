# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Answers that all members of a cluster share.

They boot and ask at the same time: Nova and the agents are asked once for all
of them.
"""

import concurrent.futures
import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from nova_vhpc.vendordata import live, nova
from nova_vhpc.vendordata.answer import Answers

_Value = TypeVar('_Value')


class SharedReads(Generic[_Value]):
    """The reads that are under way, by key.

    Threads that want the same at the same time share one: a cache alone does
    not help them, because it is empty until the first read has ended.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: dict[Hashable, concurrent.futures.Future[_Value]] = {}

    def get(self, key: Hashable, read: Callable[[], _Value]) -> _Value:
        """Return what a read returns that is under way, or else a new one.

        A read that is under way may have begun before the caller knew of
        what it wants to read.

        :param key: equal for callers that want the same.
        :param read: reads, in the thread of the first caller.
        :raises Exception: what the read raised, in all threads.
        """
        with self._lock:
            future = self._under_way.get(key)
            is_first = future is None
            if future is None:
                future = self._under_way[key] = concurrent.futures.Future()
        if is_first:
            try:
                future.set_result(read())
            except BaseException as error:
                future.set_exception(error)
            finally:
                with self._lock:
                    del self._under_way[key]
        return future.result()


class SharedAnswers:
    """Makes the answers of a cluster once for all its members.

    :param source: reads clusters from Nova.
    :param ttl_s: time for which the answers of a cluster are kept, in
        seconds.
    :param statuses: knows how members run; None if agents are not asked.
    """

    def __init__(
        self,
        source: nova.NovaClusterSource,
        ttl_s: float,
        statuses: live.AgentStatuses | None = None,
    ) -> None:
        self._source = source
        self._ttl_s = ttl_s
        self._statuses = statuses
        self._reads = SharedReads[Answers]()
        self._lock = threading.Lock()
        # By project and server group: when they expire, and the answers.
        self._kept: dict[tuple[str, str], tuple[float, Answers]] = {}

    def of(self, server_uuid: str, project_id: str) -> bytes:
        """Return the answer to a server.

        :param server_uuid: UUID of the server that asks.
        :param project_id: ID of its project.
        :raises NotMember: the server is in no virtual cluster, or not in the
            project.
        :raises RuntimeError: Nova does not answer, refuses to, its answer is
            not what its API describes, or the credentials cannot be used.
        """
        answers = self._find_kept(server_uuid, project_id)
        if answers is None:
            answers = self._wait_or_read(server_uuid, project_id)
        return answers.of(server_uuid)

    def _find_kept(self, server_uuid: str, project_id: str) -> Answers | None:
        now = time.monotonic()
        with self._lock:
            kept = list(self._kept.items())
        for (project, _group), (expiry, answers) in kept:
            if (
                project == project_id
                and expiry > now
                and server_uuid in answers
            ):
                return answers
        return None

    def _wait_or_read(self, server_uuid: str, project_id: str) -> Answers:
        """Return the answers that another server of the project waits for.

        Most such servers are of one cluster, so Nova need not be asked of
        which. If this one is not, or the read fails, it is read by itself.
        """
        is_first = False

        def read() -> Answers:
            nonlocal is_first
            is_first = True
            return self._read(server_uuid, project_id)

        try:
            answers = self._reads.get(project_id, read)
        except (nova.NotMember, RuntimeError):
            if is_first:
                raise
        else:
            if server_uuid in answers:
                return answers
        return self._read(server_uuid, project_id)

    def _read(self, server_uuid: str, project_id: str) -> Answers:
        group = self._source.group_of(server_uuid, project_id)
        # A read that was under way may have begun before Nova had the server,
        # but the one after it has not.
        for _ in range(2):
            answers = self._reads.get(
                (project_id, group),
                lambda: self._make(group, project_id),
            )
            if server_uuid in answers:
                return answers
        raise nova.NotMember(f'server {server_uuid} left its server group')

    def _make(self, group: str, project_id: str) -> Answers:
        """Make the answers of a cluster, and keep them."""
        cluster = self._source.cluster(group, project_id)
        answers = Answers(
            cluster,
            None
            if self._statuses is None
            else self._statuses.of_members(cluster),
        )
        now = time.monotonic()
        with self._lock:
            self._kept = {
                key: entry
                for key, entry in self._kept.items()
                if entry[0] > now
            }
            self._kept[project_id, group] = now + self._ttl_s, answers
        return answers
