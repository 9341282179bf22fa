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

The kernel adds a wait to a thread's schedstat when the wait ends: a vCPU that
gets no CPU at all looks asleep, and then seems to have waited for seconds
within one period. Its state tells the difference. Units: nanoseconds. Cost:
for what did not move since the last read, one ``stat`` file in every tenth,
about 3 us; for what is found to be starved, one each time. Blind for the
first second or so.
"""

import dataclasses
import itertools
import pathlib
from collections.abc import Sequence

EVERY = 10
"""Reads from one look at those that did not move to the next."""

_RUNNABLE = b'R'
_turns = itertools.count()


@dataclasses.dataclass(slots=True)
class _Queued:
    """A thread that was seen runnable.

    :ivar ticks: CPU time as ``stat`` has it. Where the kernel's tick is
        stopped (``nohz_full``) it moves while schedstat does not.
    :ivar since_ns: until when its wait is counted.
    :ivar counted_ns: what of its wait the kernel has not counted yet.
    """

    ticks: int
    since_ns: int
    counted_ns: int = 0


class Starvation:
    """Follows the threads of one VM.

    :param files: their ``stat`` files, in vCPU order.
    """

    __slots__ = ('_files', '_queued', '_turn')

    def __init__(self, files: Sequence[pathlib.Path]) -> None:
        self._files = tuple(files)
        self._queued: dict[int, _Queued] = {}
        # VMs take turns, so that all ticks cost the same.
        self._turn = next(_turns) % EVERY

    def due(self) -> bool:
        """Whether there is anything to look at; to be asked at each read."""
        self._turn = (self._turn + 1) % EVERY
        return self._turn == 0 or bool(self._queued)

    def correct(
        self, moved: Sequence[int], wait: list[int], now_ns: int
    ) -> None:
        """Count the waits as they pass.

        :param moved: by vCPU, whether any counter moved; 0 if not.
        :param wait: by vCPU, what the kernel counted since the last read;
            changed in place.
        """
        for vcpu, queued in tuple(self._queued.items()):
            if moved[vcpu]:
                # Now the kernel counts all that was counted here.
                wait[vcpu] = max(0, wait[vcpu] - queued.counted_ns)
                del self._queued[vcpu]
            elif self._ticks_in_queue(vcpu) == queued.ticks:
                passed_ns = now_ns - queued.since_ns
                wait[vcpu] += passed_ns
                queued.counted_ns += passed_ns
                queued.since_ns = now_ns
            else:
                del self._queued[vcpu]
        if self._turn == 0:
            for vcpu in range(len(self._files)):
                if not moved[vcpu] and vcpu not in self._queued:
                    ticks = self._ticks_in_queue(vcpu)
                    if ticks is not None:
                        self._queued[vcpu] = _Queued(ticks, now_ns)

    def _ticks_in_queue(self, vcpu: int) -> int | None:
        """CPU time of a thread that is runnable; None if it is not."""
        try:
            stat = self._files[vcpu].read_bytes()
            fields = stat.rpartition(b') ')[2].split()
            if fields[0] != _RUNNABLE:
                return None
            return int(fields[11]) + int(fields[12])
        except (OSError, ValueError, IndexError):
            return None
