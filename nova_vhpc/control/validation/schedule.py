# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Check gang windows: slice policies are plugins."""

from nova_vhpc.control import model


def fault(
    schedule: model.WindowSchedule,
    uuids: frozenset[str],
    limits: model.ActuatorLimits,
) -> str | None:
    """Return why a schedule must not be played; None if it may be.

    :param uuids: VMs whose shares may be set.
    """
    if not schedule.turns:
        return 'no turns'
    if not schedule.shares_after.keys() <= uuids:
        return 'names VMs that are not in the view or are in the I/O pool'
    named = list(schedule.shares_after)
    for turn in schedule.turns:
        if turn.width_us <= 0:
            return f'a turn of {turn.width_us} us'
        # Mostly in the same order; to compare lists is much faster.
        if (
            list(turn.shares) != named
            and turn.shares.keys() != schedule.shares_after.keys()
        ):
            return 'turns and shares_after name different VMs'
        if not turn.favoured <= turn.shares.keys():
            return 'favours a VM without shares'
        if not turn.cpus.keys() <= turn.shares.keys():
            return 'places a VM without shares'
        taken = [cpu for placed in turn.cpus.values() for cpu in placed]
        if len(taken) != len(set(taken)):
            return 'gives a CPU to two vCPUs'
    idle = {model.IDLE_SHARES} if limits.can_idle else set()
    for shares, more in (
        (schedule.shares_after, set[int]()),
        *((turn.shares, idle) for turn in schedule.turns),
    ):
        # Many VMs have few different values.
        for value in set(shares.values()) - more:
            if not limits.min_shares <= value <= limits.max_shares:
                return f'shares of {value}'
    return None
