# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Otsu's threshold between low and heavy I/O.

N. Otsu, 1979; I/O-perception paper, section III.B, "I/O load intensity
threshold".
"""

import array


class OtsuThreshold:
    """The threshold that best divides the latest samples into two classes.

    In the paper the history has 200 samples, and the threshold is renewed
    after every 50. Levels are whole numbers of I/O events.

    :param history: number of latest samples that count, at least 2.
    :param renewal: number of samples between two renewals, at least 1.
    :ivar value: threshold in I/O events; None before the first renewal.
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
        # An array, sorted only on renewal: with hundreds of VMs most of the
        # time goes into fetching objects from memory.
        self._history = array.array('q')
        self._size = max(2, history)
        self._next = 0
        self._renewal = max(1, renewal)
        self._samples_since_renewal = 0
        self.value: float | None = None

    def add(self, events: float) -> None:
        """Add a sample; drop the oldest one if the history is full.

        :param events: I/O events of a period, 0 or more.
        """
        level = round(events)
        if len(self._history) < self._size:
            self._history.append(level)
        else:
            self._history[self._next] = level
            self._next = (self._next + 1) % self._size
        self._samples_since_renewal += 1

    @property
    def due(self) -> bool:
        """Whether enough samples were added since the last renewal."""
        return self._samples_since_renewal >= self._renewal

    def renew(self) -> None:
        """Compute the threshold from the history.

        If all samples are equal the former threshold stays, because there is
        nothing to divide.
        """
        self._samples_since_renewal = 0
        threshold = otsu(sorted(self._history))
        if threshold is not None:
            self.value = threshold


def otsu(levels: list[int]) -> float | None:
    """Return the k that maximises the variance between [..k] and [k+1..].

    The paper iterates k over all levels. Every k from one sample up to the
    next greater one divides the samples in the same way, so the maximum is a
    range of k. Its middle is returned: predictions are rounded to multiples
    of 50 events, and could fall on the wrong side of a threshold that equals
    the greatest sample of the lower class.

    :param levels: samples in ascending order.
    :returns: the threshold; None with fewer than two different levels.
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
        # In the paper's terms omega_k = index / count, mu_k = below / count.
        # All is multiplied by count squared, which does not move the maximum.
        gap = total * index - below * count
        variance = gap * gap / (index * (count - index))
        if variance > best:
            best = variance
            threshold = (low + high) / 2
    return threshold
