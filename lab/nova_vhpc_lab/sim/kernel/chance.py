# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Random numbers of a simulated host (splitmix64), and its histograms.

Numba's own generator is one for the whole process: two hosts would disturb
each other.
"""

import math

import numpy as np

from nova_vhpc_lab.sim.kernel.compiled import inner
from nova_vhpc_lab.sim.kernel.state import BUCKETS


@inner
def uniform(s):
    """Return a number of [0, 1)."""
    s.random[0] += np.uint64(0x9E3779B97F4A7C15)
    z = s.random[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.float64(z >> np.uint64(11)) / 9007199254740992.0


@inner
def exponential(s, mean):
    """Return an integer of exponential distribution, at least 1."""
    return max(1, int(-mean * math.log(1.0 - uniform(s))))


@inner
def around(s, mean, spread):
    """Return an integer of mean +- spread * mean; spread > 1: exponential."""
    if spread > 1.0:
        return exponential(s, mean)
    return max(1, int(mean * (1.0 + spread * (2.0 * uniform(s) - 1.0))))


@inner
def record(histogram, time):
    """Count a time in a histogram of 16 buckets per octave."""
    bucket = int(16.0 * math.log2(1.0 + time / 100.0))
    histogram[min(bucket, BUCKETS - 1)] += 1
