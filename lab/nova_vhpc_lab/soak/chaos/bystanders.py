# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Watch domains that nobody may write to."""

import contextlib
import os
import pathlib
import threading
from collections.abc import Iterable, Iterator

_INTERVAL_S = 0.05
_CONTROL_GROUPS = pathlib.Path('/sys/fs/cgroup')
_FILES = frozenset(
    {
        *('cpu.shares', 'cpu.cfs_quota_us', 'cpu.cfs_period_us'),
        *('cpu.weight', 'cpu.max', 'cpuset.cpus'),
    }
)


class Bystanders:
    """Compares control groups, affinities and records with how they were.

    :param pids: QEMU processes by the names of their domains, which their
        control groups bear, too.
    :param uuids: UUIDs of these domains.
    :param journal: directory that must not get a record of them.
    """

    def __init__(
        self,
        pids: dict[str, int],
        uuids: Iterable[str],
        journal: pathlib.Path,
    ) -> None:
        self._pids = pids
        self._uuids = tuple(uuids)
        self._journal = journal
        self._files = tuple(
            file
            for name in pids
            for group in _CONTROL_GROUPS.rglob(f'*{name}*')
            for file in (group, *group.rglob('*'))
            if file.name in _FILES
        ) + tuple(
            file
            for name in pids
            for group in _CONTROL_GROUPS.rglob(f'*{name}*')
            for file in group.iterdir()
            if file.name in _FILES
        )
        self._before = self._look()
        self._changes: set[str] = set()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.looks = 0

    @property
    def watched(self) -> int:
        """Number of files and affinities that are compared."""
        return len(self._before)

    def start(self) -> None:
        """Begin to look, twenty times a second."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for the last look."""
        self._done.set()
        self._thread.join()

    def take_changes(self) -> list[str]:
        """Return what was seen to change since the last call."""
        self._compare()
        changes, self._changes = sorted(self._changes), set()
        return changes

    def _watch(self) -> None:
        while not self._done.wait(_INTERVAL_S):
            self._compare()

    def _compare(self) -> None:
        self.looks += 1
        now = self._look()
        for what, value in self._before.items():
            # A missing value is a thread that has ended.
            if now.get(what, value) != value:
                self._changes.add(f'{what}: {value} became {now[what]}')
        for uuid in self._uuids:
            if (self._journal / f'{uuid}.json').exists():
                self._changes.add(f'a journal record of {uuid}')

    def _look(self) -> dict[str, str]:
        return dict(self._values())

    def _values(self) -> Iterator[tuple[str, str]]:
        for file in self._files:
            with contextlib.suppress(OSError):
                yield str(file), file.read_text().strip()
        for name, pid in self._pids.items():
            for tid in os.listdir(f'/proc/{pid}/task'):
                with contextlib.suppress(OSError):
                    affinity = sorted(os.sched_getaffinity(int(tid)))
                    yield f'affinity of thread {tid} of {name}', str(affinity)
