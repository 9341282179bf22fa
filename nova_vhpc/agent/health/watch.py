# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Follows the health of the agent's parts over time, and logs changes."""

import dataclasses
import datetime
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from nova_vhpc.agent.health import rules

LOG = logging.getLogger(__name__)

LOG_AFTER_S = 10.0
"""Time for which a part must be unhealthy before it is logged: a VM that just
starts may not be measured yet."""

MAX_STARTING_S = 60.0
"""Time after which a part that still starts is unhealthy."""


@dataclasses.dataclass(slots=True)
class _Followed:
    """A part, and since when it is in its state.

    :ivar since: seconds since 1970.
    :ivar since_s: monotonic time, in seconds.
    :ivar logged: whether the part was logged as not healthy.
    """

    part: rules.PartHealth
    since: float
    since_s: float
    logged: bool = False

    def health(self, now_s: float) -> rules.PartHealth:
        """Return the part's health; one that starts for long is unhealthy."""
        starting_s = now_s - self.since_s
        if (
            self.part.state is not rules.State.STARTING
            or starting_s <= MAX_STARTING_S
        ):
            return self.part
        return rules.PartHealth(
            rules.State.DEGRADED,
            'it has not started yet',
            'see the log of the agent; what does not answer?',
        )


class HealthWatch:
    """Judges status documents, and remembers since when a part is off.

    :param clock_s: returns the monotonic time, in seconds.
    :ivar last: what :meth:`judge` returned last; empty before.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._followed: dict[str, _Followed] = {}
        self.last: dict[str, Any] = {}

    def judge(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return the key ``health`` of a status document.

        :param document: the status document, without that key.
        """
        parts = rules.assess(document)
        now_s = self._clock_s()
        with self._lock:
            for name, part in parts.items():
                last = self._followed.get(name)
                if last is None or last.part.state is not part.state:
                    logged = last is not None and last.logged
                    last = self._followed[name] = _Followed(
                        part, time.time(), now_s, logged
                    )
                last.part = part
            followed = dict(self._followed)
        judged = {name: one.health(now_s) for name, one in followed.items()}
        state = rules.worst(judged.values())
        self.last = {
            'state': state.value,
            'healthy': state.healthy,
            'parts': {
                name: {
                    'state': part.state.value,
                    'healthy': part.state.healthy,
                    'what': part.what,
                    'action': part.action,
                    'since': followed[name].since,
                }
                for name, part in judged.items()
            },
        }
        return self.last

    def log_changes(self) -> None:
        """Log each part that is not healthy, or healthy again, once."""
        now_s = self._clock_s()
        with self._lock:
            followed = dict(self._followed)
        for name, one in followed.items():
            part = one.health(now_s)
            if part.state.healthy:
                if one.logged:
                    LOG.info('Healthy again: %s', name)
                one.logged = False
            elif not one.logged and now_s - one.since_s >= LOG_AFTER_S:
                one.logged = True
                LOG.warning(
                    'Not healthy: %s: %s: %s; %s',
                    name,
                    part.state.value,
                    part.what,
                    part.action,
                )


def sentences(health: Mapping[str, Any]) -> list[str]:
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
