# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""What hosts tell each other about the slots of a cluster."""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

from nova_vhpc.control import leases

MAX_EPOCH = 2**31 - 1

MAX_LAGS = 4
"""Most lags in one message, so that it stays small."""

MAX_LAG_US = 3_600_000_000
"""Clocks that differ by more are as wrong."""


class Decision(NamedTuple):
    """Where a cluster runs, as the leader of its hosts decided.

    :ivar base: the slots, as a mask, that it is guaranteed; 0 if there are
        none on all of its hosts.
    :ivar slots: these, and others that nobody else needs.
    :ivar wanted: number of slots that it wants.
    :ivar width: most CPUs that it needs on any of its hosts.
    :ivar span: number of its hosts.
    :ivar epoch: grows whenever ``slots`` changes.
    """

    base: int
    slots: int
    wanted: int
    width: int
    span: int
    epoch: int


class Report(NamedTuple):
    """What one host says about one cluster.

    :ivar wanted: number of slots that the cluster is entitled to there.
    :ivar width: number of CPUs that it needs side by side there.
    :ivar blocked: slots in which it does not fit beside what is guaranteed to
        clusters of higher rank.
    :ivar avoided: slots in which it does not fit beside what is guaranteed to
        those of lower rank.
    :ivar taken: slots in which it does not fit beside what is guaranteed to
        all others, and what those of higher rank have besides.
    :ivar plays: whether the host would play windows for the cluster. If one
        would not, the cluster gets no slots.
    :ivar rests: 0 if the host plays the cluster's slots. Else it plays none,
        for the sake of a cluster so many clusters away that is refused.
    :ivar ready: whether the host has listened for long enough to lead.
    :ivar decision: the decision, if the host leads; else None.
    :ivar slot_us: length of the host's slots; 0 if unknown.
    """

    wanted: int
    width: int
    blocked: int = 0
    avoided: int = 0
    taken: int = 0
    plays: bool = True
    rests: int = 0
    ready: bool = False
    decision: Decision | None = None
    slot_us: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Message(leases.Message[Report]):
    """One host's report about one cluster, as it is sent.

    :ivar wall_us: the sender's wall clock when it was sent; 0 if unknown.
    :ivar lags: by host, the least time that its messages took to the sender,
        by the difference of their wall clocks.
    """

    wall_us: int = 0
    lags: Mapping[str, int] = dataclasses.field(default_factory=dict)
