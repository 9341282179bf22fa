# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Traces made to resemble those of parallel programs."""

import random


def exchange(seed, periods=500, iteration=2.13, events=200, noise=6):
    """Compute and exchange in turn; sampling drifts through the phase.

    Each iteration sends ``events`` in its last third, so that a period of
    100 ms sees more or less of it, as with BT and SP.
    """
    source = random.Random(seed)
    trace = []
    time = 0.0
    for _ in range(periods):
        share = 0.0
        for step in range(20):
            phase = (time + step / 20) % iteration / iteration
            share += phase > 0.66
        time += 1 + source.gauss(0, 0.004)
        sent = events * share / 20 / 0.34 / iteration
        trace.append(max(0.0, sent + source.gauss(0, noise)))
    return trace


def bursts(seed, periods=600, height=160):
    """Rest, broken by short bursts, as LU does it."""
    source = random.Random(seed)
    trace = []
    while len(trace) < periods:
        trace += [0.0] * source.randint(3, 25)
        trace += [
            source.uniform(0.6, 1.4) * height
            for _ in range(source.randint(1, 2))
        ]
    return trace[:periods]


def ladder(seed, periods=300):
    """A fixed course of levels per iteration, as in a V-cycle."""
    source = random.Random(seed)
    course = (30, 90, 180, 260, 170, 80)
    return [
        max(0.0, course[index % 6] + source.gauss(0, 10))
        for index in range(periods)
    ]


def idle(periods=80):
    """Nearly nothing: one exchange at the start, one at the end."""
    return [0.0, 52.0, *([0.0] * (periods - 4)), 53.0, 1.0]


FAMILY = {
    'exchange': lambda seed: exchange(seed),
    'exchange-slow': lambda seed: exchange(seed, iteration=4.41),
    'exchange-uneven': lambda seed: exchange(seed, iteration=3.37, noise=15),
    'bursts': lambda seed: bursts(seed),
    'bursts-high': lambda seed: bursts(seed, height=900),
    'ladder': lambda seed: ladder(seed),
    'idle': lambda seed: idle(80 + seed // 10),
}


def joined(members, seed):
    """Random stretches of a recording, the same for all its members.

    They begin and end where the recording does not, so that what was fitted
    to it does not hold.
    """
    source = random.Random(seed)
    periods = len(members[0])
    order = []
    while len(order) < periods:
        length = min(periods, source.randint(20, 60))
        start = source.randint(0, periods - length)
        order.extend(range(start, start + length))
    return tuple(
        tuple(member[index] for index in order[:periods]) for member in members
    )
