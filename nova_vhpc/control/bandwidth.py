# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""From a time slice to period and quota, keeping the CPU share of the flavor.

Linux has no time slice to set. So a time slice *s* at CPU share *f* is
written as quota = s, period = s/f, and only the grain changes. Without a
quota, quota = period = s never throttles a vCPU. If a slice is not shorter
than the flavor's own quota, the original period and quota stay.
"""

import functools
import math
from fractions import Fraction

from nova_vhpc.control import model

EXACT_WITHIN = 0.05
"""How far, relatively, a slice may be moved to keep the share exactly."""

Bandwidth = tuple[int, int]
"""Period and quota, in microseconds; no limit is :data:`model.UNLIMITED`."""


def of_tune(tune: model.CpuTune) -> Bandwidth | None:
    """Return period and quota of a cputune; None if either is unknown."""
    if tune.period_us is None or tune.quota_us is None:
        return None
    quota_us = tune.quota_us if tune.quota_us > 0 else model.UNLIMITED
    return tune.period_us, quota_us


def is_possible(bandwidth: Bandwidth, limits: model.ActuatorLimits) -> bool:
    """Return whether the actuator takes this period and quota."""
    period_us, quota_us = bandwidth
    return limits.min_period_us <= period_us <= limits.max_period_us and (
        quota_us == model.UNLIMITED
        or limits.min_quota_us <= quota_us <= limits.max_quota_us
    )


def shortest_slice_us(limits: model.ActuatorLimits) -> int:
    """Return the shortest time slice that the actuator can bring about."""
    return max(
        1,
        limits.effective_min_slice_us,
        limits.min_quota_us,
        limits.min_period_us,
    )


@functools.lru_cache(maxsize=1_024)
def for_slice(
    slice_us: int | None,
    original: Bandwidth,
    limits: model.ActuatorLimits,
    specified: bool = False,
) -> Bandwidth | None:
    """Return period and quota that make a slice at the original CPU share.

    Cached: there are many VMs but few flavors and slices, and fractions are
    slow.

    :param slice_us: time slice, in microseconds; None for the original.
    :param original: as :func:`of_tune` returns it.
    :param specified: whether the administrator wants just this slice, even if
        the original is finer.
    :returns: None if the original is to stay: because it was asked for, or
        because no whole numbers inside the limits keep the share.
    """
    if slice_us is None or not is_possible(original, limits):
        return None
    period_us, quota_us = original
    shortest_us = shortest_slice_us(limits)
    if quota_us == model.UNLIMITED:
        length_us = max(slice_us, shortest_us)
        length_us = min(length_us, limits.max_period_us, limits.max_quota_us)
        return (length_us, length_us) if length_us >= shortest_us else None
    share = Fraction(quota_us, period_us)
    # Both quota and period = quota / share must stay inside the limits.
    low_us = max(shortest_us, math.ceil(limits.min_period_us * share))
    high_us = min(
        limits.max_quota_us, math.floor(limits.max_period_us * share)
    )
    length_us = min(max(slice_us, low_us), high_us)
    if length_us < low_us or (length_us >= quota_us and not specified):
        return None
    return _keep_share(length_us, share, low_us, high_us)


def _keep_share(
    length_us: int, share: Fraction, low_us: int, high_us: int
) -> Bandwidth:
    """Return whole numbers with the share: exact if near, or within 0.05%."""
    multiple = max(1, round(length_us / share.numerator))
    quota_us = multiple * share.numerator
    if (
        low_us <= quota_us <= high_us
        and abs(quota_us - length_us) <= EXACT_WITHIN * length_us
    ):
        return multiple * share.denominator, quota_us
    # The period is at least 1000 us, so half a microsecond is 0.05% of it.
    return round(length_us / share), length_us
