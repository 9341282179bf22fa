# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Facts about one host in one scheduling session."""

from typing import Any

from nova_vhpc.scheduler.hosts import requirements
from nova_vhpc.scheduler.session import candidates

ATTRIBUTE = '_vhpc'
"""Attribute of a host state that holds its :class:`HostInfo`."""

SESSION_ATTRIBUTE = '_vhpc_session'
"""Attribute of a host state that holds the session that it belongs to."""


class HostInfo:
    """Facts about one host in one session; the host state holds it.

    :ivar seen: ``HostState.num_instances`` when last examined; it
        grows when a member is placed.
    :ivar placed: members of the request that Nova has placed on it.
    :ivar run: number of the last filter run that examined the host.
    :ivar weight: raw weight for the next member.
    :ivar multiplier: weight multiplier of the host.
    :ivar weigh_run: number of the last weighing that included the host.
    :ivar candidates: ordered allocation candidates for the next member; other
        filters may have replaced them on the host state.
    """

    __slots__ = (
        'candidates',
        'fit_result',
        'multiplier',
        'name',
        'placed',
        'reservations',
        'run',
        'seen',
        'state',
        'weight',
    )

    def __init__(
        self,
        state: Any,
        fit_result: requirements.FitResult,
    ) -> None:
        self.state = state
        self.fit_result = fit_result
        self.seen: int = state.num_instances
        self.placed = 0
        self.run = 0
        self.weight = 0.0
        self.multiplier = 1.0
        self.name = ''
        self.reservations: candidates.UplinkReservations | None = None
        self.candidates: candidates.Candidates | None = None
