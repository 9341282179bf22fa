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

"""Otsu's threshold over a history of I/O events.

I/O-perception paper, section III.B, "I/O load intensity threshold".
"""

import array


class OtsuThreshold:
    """Divides the latest samples into low and heavy I/O, at best.

    The paper takes a history of 200 samples and renews the threshold every
    50. Intensity levels are whole numbers of events.
    """

    __slots__ = (
        '_history',
        '_next',
        '_renewal',
        '_samples_since_renewal',
        '_size',
        'value',
    )

    def __init__(self, history: int = 200, renewal: int = 50) -> None:
        """Start empty; there is no threshold before the first renewal."""
        # Numbers in one piece of memory, sorted only when that is asked for:
        # with hundreds of VMs the time goes into fetching each from there.
        self._history = array.array('q')
        self._size = max(2, history)
        self._next = 0
        self._renewal = max(1, renewal)
        self._samples_since_renewal = 0
        self.value: float | None = None

    def add(self, events: float) -> None:
        """Take one sample, >= 0; the oldest is dropped when full."""
        level = round(events)
        if len(self._history) < self._size:
            self._history.append(level)
        else:
            self._history[self._next] = level
            self._next = (self._next + 1) % self._size
        self._samples_since_renewal += 1

    @property
    def due(self) -> bool:
        """Whether enough samples have come in since the last renewal."""
        return self._samples_since_renewal >= self._renewal

    def renew(self) -> None:
        """Compute the threshold anew.

        It stays as it was where all samples are alike: there is nothing to
        divide then.
        """
        self._samples_since_renewal = 0
        threshold = otsu(sorted(self._history))
        if threshold is not None:
            self.value = threshold


def otsu(levels: list[int]) -> float | None:
    """The k that maximises the variance between [..k] and [k+1..].

    The paper iterates k over all levels. Every k between two neighbouring
    levels that occur divides the samples alike, so the maximum is a whole
    range of k; we return its middle, or predictions that are rounded to a
    multiple of 50 events would fall on the wrong side of a threshold that
    is the greatest low sample itself.

    :param levels: samples in ascending order.
    :returns: None when there are fewer than two different levels.
    """
    count = len(levels)
    if count < 2 or levels[0] == levels[-1]:
        return None
    total = sum(levels)
    best = -1.0
    threshold = 0.0
    below = 0
    for index in range(1, count):
        low, high = levels[index - 1], levels[index]
        below += low
        if low == high:
            continue
        # omega_k = index / count and mu_k = below / count; multiplied by
        # count squared throughout, which does not move the maximum.
        gap = total * index - below * count
        variance = gap * gap / (index * (count - index))
        if variance > best:
            best = variance
            threshold = (low + high) / 2
    return threshold
