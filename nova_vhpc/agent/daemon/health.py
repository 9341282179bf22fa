# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The health of a part of the agent: what is off, and what to do. Pure."""

import dataclasses
import datetime
import enum
from collections.abc import Iterable, Mapping
from typing import Any

Document = Mapping[str, Any]


class State(enum.StrEnum):
    """State of a part, best first.

    OFF: not configured, and not missed. DEGRADED: works in part, or for some
    VMs only.
    """

    OK = 'ok'
    OFF = 'off'
    STARTING = 'starting'
    DEGRADED = 'degraded'
    FAILED = 'failed'

    @property
    def healthy(self) -> bool:
        """Whether nothing needs to be done."""
        return self in (State.OK, State.OFF, State.STARTING)


@dataclasses.dataclass(frozen=True, slots=True)
class PartHealth:
    """The health of one part.

    :ivar what: what is off; empty if nothing is.
    :ivar action: what to do about it.
    """

    state: State
    what: str = ''
    action: str = ''


OK = PartHealth(State.OK)
OFF = PartHealth(State.OFF)
STARTING = PartHealth(State.STARTING)


def worst(parts: Iterable[PartHealth]) -> State:
    """Return the state of all parts together: ok, degraded or failed."""
    states = {part.state for part in parts}
    for state in (State.FAILED, State.DEGRADED):
        if state in states:
            return state
    return State.OK


def sentences(health: Document) -> list[str]:
    """Return one line for each part that is not healthy.

    :param health: ``health`` of the status document.
    """
    return [
        f'{name}: {part["state"]} since {_utc(part["since"])}: '
        f'{part["what"]}; {part["action"]}'
        for name, part in health.get('parts', {}).items()
        if not part['healthy']
    ]


def _utc(since: float) -> str:
    try:
        time = datetime.datetime.fromtimestamp(since, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return 'a time beyond the calendar'
    return time.strftime('%Y-%m-%d %H:%M:%S UTC')
