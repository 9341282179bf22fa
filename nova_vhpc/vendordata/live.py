# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""How members run right now, as a tenant may know it. Pure.

What agents say has names of the operator's (NICs, bridges, other servers), in
sentences, too: nothing is passed on but numbers, and sentences of this module.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

PAUSED = 'the agent of its host is paused, so nothing coordinates its vCPUs'
EXTERNAL = 'somebody set its CPU settings by hand; the agent leaves them alone'
FAILING = 'its CPU settings cannot be written at the moment'
NOT_STEERED = (
    'its packets do not take the uplink that it has claimed, but the default '
    'one of its host; ask your operator'
)


@dataclasses.dataclass(frozen=True, slots=True)
class Live:
    """How a member runs. A field is None if it is unknown.

    :ivar run_s: CPU time of its vCPUs since it was started, in seconds.
    :ivar held_up_s: time in which its vCPUs wanted to run and did not, in
        seconds.
    :ivar in_windows_s: time for which gang windows favoured it, in seconds.
    :ivar received: CPU time received lately, as a part of what stock Linux
        would give.
    :ivar slot_share: part of all time slots that its cluster has.
    :ivar overcommit: vCPUs of all servers of its host per CPU, to a tenth.
    :ivar network: network configuration that really holds.
    :ivar problem: why the agent does not do for it what it should.
    """

    run_s: float | None = None
    held_up_s: float | None = None
    in_windows_s: float | None = None
    received: float | None = None
    slot_share: float | None = None
    overcommit: float | None = None
    network: str | None = None
    problem: str | None = None


def live_of(
    status: Any, server_uuid: str, cluster_uuid: str, network: str | None
) -> Live | None:
    """Return how a member runs.

    :param status: what the agent of its host answered to ``status``; agents
        of other versions may answer otherwise.
    :param network: network configuration of the member's flavor.
    :returns: None if the agent does not know the member, or its answer cannot
        be read.
    """
    try:
        for vm in status['vms']:
            if vm['uuid'] == server_uuid:
                return _live(status, vm, cluster_uuid, network)
    except (AttributeError, LookupError, TypeError, ValueError):
        pass
    return None


def _live(
    status: Mapping[str, Any],
    vm: Mapping[str, Any],
    cluster_uuid: str,
    network: str | None,
) -> Live:
    steered = _is_steered(status.get('binding') or {}, vm['uuid'])
    overcommit = _number(status['agent'].get('overcommit'))
    return Live(
        run_s=_number(vm.get('run_s'), 3),
        held_up_s=_number(vm.get('delay_s'), 3),
        in_windows_s=_number(vm.get('window_s'), 3),
        received=_number(vm.get('received'), 2),
        slot_share=_slot_share(status, cluster_uuid),
        overcommit=None if overcommit is None else round(overcommit, 1),
        network={True: network, False: 'default uplink', None: None}[steered],
        problem=_problem(status, vm, steered),
    )


def _is_steered(binding: Mapping[str, Any], uuid: str) -> bool | None:
    """Return whether a member's packets take the uplinks that it claimed.

    :returns: None if it has claimed none.
    """
    if uuid in (binding.get('problems') or {}):
        return False
    return True if uuid in (binding.get('bound') or ()) else None


def _slot_share(status: Mapping[str, Any], cluster_uuid: str) -> float | None:
    slots = (status.get('peers') or {}).get('slots') or {}
    cluster = (slots.get('clusters') or {}).get(cluster_uuid) or {}
    slot = cluster.get('slot')
    return None if slot is None else _number(1 / slot['every'], 3)


def _problem(
    status: Mapping[str, Any], vm: Mapping[str, Any], steered: bool | None
) -> str | None:
    if status['agent']['paused']:
        return PAUSED
    if vm.get('problem'):
        return FAILING
    if vm.get('external'):
        return EXTERNAL
    return NOT_STEERED if steered is False else None


def _number(value: Any, digits: int | None = None) -> float | None:
    """Return a finite number; None for None.

    :raises ValueError: it is not finite, and would be no JSON.
    """
    if value is None:
        return None
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(value)
    return number if digits is None else round(number, digits)
