# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A guest that is bound, and whether the effect of that was seen."""

import dataclasses
import logging
import time
from collections.abc import Mapping

from nova_vhpc.agent.guests.guest import Guest
from nova_vhpc.agent.uplinks import claims, steering

LOG = logging.getLogger(__name__)

UNSEEN_S = 10.0
"""Time for which it is no problem that a binding has no effect yet."""

UNSEEN_PERIOD_S = 0.5
"""Time between two looks at the effect until it is seen."""

SEEN_PERIOD_S = 30.0
"""The same afterwards."""


@dataclasses.dataclass(frozen=True, slots=True)
class BoundGuest:
    """A guest whose claims steer its packets.

    :ivar guest: the guest as it was bound: a restarted domain is another
        Guest object, and must be bound again.
    :ivar steered_by: what steers them.
    :ivar uplinks: the uplinks that it has claimed.
    :ivar check_s: monotonic time of the next reading of its claims.
    :ivar is_certain: whether the networks of its NICs are known.
    :ivar since_s: monotonic time since when the effect is as it is.
    :ivar unseen: what has no effect yet; empty if the effect was seen.
    :ivar look_s: monotonic time of the next look at the effect.
    """

    guest: Guest
    steered_by: steering.Carrier
    uplinks: tuple[claims.ClaimedUplink, ...]
    check_s: float
    is_certain: bool
    since_s: float
    unseen: str = ''
    look_s: float = 0.0

    @property
    def in_force(self) -> Mapping[str, str]:
        """Where the guest's packets go now, by MAC address of the NIC."""
        if self.steered_by.binder is None:
            return {}
        return self.steered_by.binder.in_force(self.guest.info.uuid)

    @property
    def problem(self) -> str:
        """Why the packets do not go there now; empty if they may."""
        binder = self.steered_by.binder
        problem = binder.problem(self.guest.info.uuid) if binder else ''
        if not problem and time.monotonic() - self.since_s >= UNSEEN_S:
            problem = self.unseen
        return problem

    @property
    def is_steered(self) -> bool:
        """Whether the packets were seen to take the claimed uplinks."""
        if not self.is_certain or self.unseen or self.problem:
            return False
        return self.steered_by.binder is None or len(self.in_force) >= len(
            self.uplinks
        )

    @property
    def intact(self) -> bool:
        """Whether all that the binder wrote is still in force."""
        return self.steered_by.binder is None or self.steered_by.binder.intact(
            self.guest.info.uuid
        )

    def look(self, steering: steering.Steering) -> 'BoundGuest':
        """Return the guest with what was seen of the effect by now."""
        now_s = time.monotonic()
        if now_s < self.look_s:
            return self
        unseen = steering.unseen(self.guest.info.uuid, self.steered_by)
        if self.unseen and not unseen:
            LOG.info(
                'VM %s: its packets are seen to take the claimed %s',
                self.guest.name,
                ', '.join(f'{one.bridge}/{one.nic}' for one in self.uplinks),
            )
        return dataclasses.replace(
            self,
            unseen=unseen,
            since_s=now_s if unseen and not self.unseen else self.since_s,
            look_s=now_s + (UNSEEN_PERIOD_S if unseen else SEEN_PERIOD_S),
        )
