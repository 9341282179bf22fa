# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The window schedule: lengths, places and weights of a rotation."""

from collections.abc import Mapping

from nova_vhpc.control import model
from nova_vhpc.control.gang import matrix, placement

MAX_CYCLE_US = 1_200_000
"""Longest rotation: VMs must have their part of any two seconds."""


def cycle_us(
    parts: tuple[float, ...], width_us: int, min_window_us: int
) -> int:
    """Return the length of a rotation.

    :param parts: lengths of the windows, as parts of the rotation.
    :param width_us: mean length of a window.
    :param min_window_us: shortest window.
    """
    shortest = max(1e-3, min(parts))
    cycle_us = max(len(parts) * width_us, round(min_window_us / shortest))
    return min(cycle_us, MAX_CYCLE_US)


def make(
    parts: tuple[float, ...],
    placements: tuple[placement.Placement, ...],
    window_shares: Mapping[str, int],
    own_weights: Mapping[str, int],
    cycle_us: int,
) -> model.WindowSchedule:
    """Return the schedule.

    :param parts: lengths of the windows, as parts of the rotation.
    :param own_weights: of each VM of a gang.
    :param cycle_us: length of the rotation, in microseconds.
    """
    out_of_turn = dict.fromkeys(own_weights, model.IDLE_SHARES)
    turns = tuple(
        model.Turn(
            width_us=end_us - begin_us,
            favoured=frozenset(placed),
            shares=out_of_turn
            | {uuid: window_shares[uuid] for uuid in placed},
            cpus=placed,
        )
        for (begin_us, end_us), placed in zip(
            matrix.pieces_us(parts, cycle_us), placements, strict=True
        )
    )
    return model.WindowSchedule(turns, own_weights)
