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

"""Gang windows that must not be played."""

from nova_vhpc.control import model


def fault(
    windows: model.WindowSchedule,
    uuids: frozenset[str],
    limits: model.ActuatorLimits,
) -> str | None:
    """Why a schedule must not be played; None if it may.

    :param uuids: VMs whose shares may be set.
    """
    if not windows.turns:
        return 'no turns'
    if not windows.shares_after.keys() <= uuids:
        return 'names VMs that are not in the view or are in the I/O pool'
    named = list(windows.shares_after)
    for turn in windows.turns:
        if turn.width_us <= 0:
            return f'a turn of {turn.width_us} us'
        # In the same order mostly, which is found out much sooner.
        if (
            list(turn.shares) != named
            and turn.shares.keys() != windows.shares_after.keys()
        ):
            return 'turns and shares_after name different VMs'
        if not turn.favoured <= turn.shares.keys():
            return 'favours a VM without shares'
    for shares in (windows.shares_after, *(t.shares for t in windows.turns)):
        # Of many VMs only a few values are different.
        for value in set(shares.values()):
            if not limits.min_shares <= value <= limits.max_shares:
                return f'shares of {value}'
    return None
