# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Count the waits of threads that get no CPU for longer than one period.

The kernel adds a wait to a thread's schedstat only when the thread leaves the
run queue. A vCPU that gets no CPU at all therefore looks asleep, and later
seems to have waited for seconds within one period. The thread's state in its
``stat`` file shows whether it is asleep or waiting.

All times are in nanoseconds. A thread that did not run costs one read of its
``stat`` file in every tenth read of the probe, about 5 us; a thread that was
found waiting costs one in each read, about 1 us. A wait can remain unnoticed
for up to ten reads.
"""

import dataclasses
import itertools
import os
import pathlib
from collections.abc import Sequence

EVERY = 10
"""Reads of the probe between two checks of threads that did not run."""

_RUNNABLE = b'R'
_turns = itertools.count()


@dataclasses.dataclass(slots=True)
class _Queued:
    """A thread that was found runnable.

    :ivar stat: descriptor of its open ``stat`` file.
    :ivar ticks: its CPU time in ``stat``, in clock ticks; None while it is
        not runnable. On CPUs without the kernel's tick (``nohz_full``) it
        grows while schedstat does not.
    :ivar since_ns: time up to which its wait was counted.
    :ivar counted_ns: part of its wait that was counted here, but not yet by
        the kernel.
    """

    stat: int
    ticks: int | None
    since_ns: int
    counted_ns: int = 0


class Starvation:
    """Counts the waits of one guest's vCPU threads.

    :param files: ``stat`` files of the threads, in vCPU order.
    """

    __slots__ = ('_files', '_queued', '_turn')

    def __init__(self, files: Sequence[pathlib.Path]) -> None:
        self._files = tuple(map(str, files))
        self._queued: dict[int, _Queued] = {}
        # Guests take turns, so that all ticks cost the same.
        self._turn = next(_turns) % EVERY

    def due(self) -> bool:
        """Return whether :meth:`correct` is due; call it in each read."""
        self._turn = (self._turn + 1) % EVERY
        return self._turn == 0 or bool(self._queued)

    def correct(
        self, ran: Sequence[int], wait: list[int], now_ns: int
    ) -> None:
        """Correct the kernel's waits of one read.

        :param ran: CPU time of each vCPU since the last read; only whether it
            is 0 matters.
        :param wait: wait of each vCPU since the last read, as the kernel
            counted it; changed in place.
        :param now_ns: monotonic time of the read.
        """
        for vcpu, queued in tuple(self._queued.items()):
            starved = queued.counted_ns > 0
            ticks = _ticks_in_queue(queued.stat)
            if wait[vcpu]:
                # The kernel now counts the whole wait, with the part that was
                # counted here. It also does if the thread was only moved to
                # the queue of another CPU.
                wait[vcpu] = max(0, wait[vcpu] - queued.counted_ns)
                queued.counted_ns = 0
            elif not ran[vcpu] and ticks is not None and ticks == queued.ticks:
                passed_ns = now_ns - queued.since_ns
                wait[vcpu] += passed_ns
                queued.counted_ns += passed_ns
            queued.ticks, queued.since_ns = ticks, now_ns
            # A starved thread may starve again at once. Also, the part that
            # was counted here must be kept until the kernel counts it.
            if not queued.counted_ns and (
                ticks is None or (ran[vcpu] and not starved)
            ):
                self._forget(vcpu)
        if self._turn == 0:
            for vcpu in range(len(self._files)):
                if not ran[vcpu] and vcpu not in self._queued:
                    self._check(vcpu, now_ns)

    def counted_ns(self, vcpu: int) -> int:
        """Return the wait of a vCPU that the kernel has not counted yet.

        Other threads may call it.
        """
        queued = self._queued.get(vcpu)
        return 0 if queued is None else queued.counted_ns

    def clear(self) -> None:
        """Forget all waits and close the files."""
        for vcpu in tuple(self._queued):
            self._forget(vcpu)

    def _check(self, vcpu: int, now_ns: int) -> None:
        try:
            stat = os.open(self._files[vcpu], os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return
        ticks = _ticks_in_queue(stat)
        if ticks is None:
            os.close(stat)
        else:
            self._queued[vcpu] = _Queued(stat, ticks, now_ns)

    def _forget(self, vcpu: int) -> None:
        os.close(self._queued.pop(vcpu).stat)


def _ticks_in_queue(stat: int) -> int | None:
    """Return the CPU time of a runnable thread, None if it is not runnable."""
    try:
        fields = os.pread(stat, 512, 0).rpartition(b') ')[2].split(None, 13)
        if fields[0] != _RUNNABLE:
            return None
        return int(fields[11]) + int(fields[12])
    except (OSError, ValueError, IndexError):
        return None
