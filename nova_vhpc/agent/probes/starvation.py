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

"""Threads that wait for a CPU for so long that no counter moves.

The kernel adds a wait to a thread's schedstat when the thread leaves the
queue: a vCPU that gets no CPU at all looks asleep, and then seems to have
waited for seconds within one period. Its state tells the difference. Units:
nanoseconds. Cost: the ``stat`` file of each thread that did not run, in one
read of ten, about 5 us; of one that is found to wait, in each, about 1 us.
Blind for up to ten reads.
"""

import dataclasses
import itertools
import os
import pathlib
from collections.abc import Sequence

EVERY = 10
"""Reads from one look at those that did not run to the next."""

_RUNNABLE = b'R'
_turns = itertools.count()


@dataclasses.dataclass(slots=True)
class _Queued:
    """A thread that was seen runnable.

    :ivar stat: its open ``stat`` file.
    :ivar ticks: CPU time as ``stat`` has it, None while it is not runnable.
        Where the kernel's tick is stopped (``nohz_full``) it moves while
        schedstat does not.
    :ivar since_ns: until when its wait is counted.
    :ivar counted_ns: what of its wait the kernel has not counted yet.
    """

    stat: int
    ticks: int | None
    since_ns: int
    counted_ns: int = 0


class Starvation:
    """Follows the threads of one VM.

    :param files: their ``stat`` files, in vCPU order.
    """

    __slots__ = ('_files', '_queued', '_turn')

    def __init__(self, files: Sequence[pathlib.Path]) -> None:
        self._files = tuple(map(str, files))
        self._queued: dict[int, _Queued] = {}
        # VMs take turns, so that all ticks cost the same.
        self._turn = next(_turns) % EVERY

    def due(self) -> bool:
        """Whether there is anything to look at; to be asked at each read."""
        self._turn = (self._turn + 1) % EVERY
        return self._turn == 0 or bool(self._queued)

    def correct(
        self, ran: Sequence[int], wait: list[int], now_ns: int
    ) -> None:
        """Count the waits as they pass.

        :param ran: by vCPU, whether it had a CPU since the last read; 0 if
            not.
        :param wait: by vCPU, what the kernel counted since then; changed in
            place.
        """
        for vcpu, queued in tuple(self._queued.items()):
            starved = queued.counted_ns > 0
            ticks = _ticks_in_queue(queued.stat)
            if wait[vcpu]:
                # Now the kernel counts all that was counted here; also where
                # the thread only waits on another CPU from now on.
                wait[vcpu] = max(0, wait[vcpu] - queued.counted_ns)
                queued.counted_ns = 0
            elif not ran[vcpu] and ticks is not None and ticks == queued.ticks:
                passed_ns = now_ns - queued.since_ns
                wait[vcpu] += passed_ns
                queued.counted_ns += passed_ns
            queued.ticks, queued.since_ns = ticks, now_ns
            # Who was starved may be so again at once; and what is counted
            # here already must not be forgotten before the kernel counts it.
            if not queued.counted_ns and (
                ticks is None or (ran[vcpu] and not starved)
            ):
                self._forget(vcpu)
        if self._turn == 0:
            for vcpu in range(len(self._files)):
                if not ran[vcpu] and vcpu not in self._queued:
                    self._look(vcpu, now_ns)

    def clear(self) -> None:
        """Forget all that is known, and give back the files."""
        for vcpu in tuple(self._queued):
            self._forget(vcpu)

    def _look(self, vcpu: int, now_ns: int) -> None:
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
    """CPU time of a thread that is runnable; None if it is not."""
    try:
        fields = os.pread(stat, 512, 0).rpartition(b') ')[2].split(None, 13)
        if fields[0] != _RUNNABLE:
            return None
        return int(fields[11]) + int(fields[12])
    except (OSError, ValueError, IndexError):
        return None
