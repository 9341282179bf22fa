# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Logs what the controller could not use or do, each kind once."""

import functools
import logging
import re
from collections.abc import Callable, Iterable

from nova_vhpc.control import model

LOG = logging.getLogger(__name__)

MAX_REMEMBERED = 1000
"""Most diagnostics that are remembered; a host has fewer guests."""

REPEAT_TICKS = 600
"""Ticks without a diagnostic, a minute by default, until it is logged
again."""

_VALUES = re.compile(r'0x[0-9a-f]+|[0-9a-f]{8}-[0-9a-f-]{27}|\d[\d.e+-]*')


@functools.lru_cache(maxsize=4096)
def _kind(reason: str) -> str:
    """Return a diagnostic without the values in it.

    Two diagnostics that differ in values only count as the same.
    """
    return _VALUES.sub('#', reason)


class DiagnosticsLog:
    """Logs the controller's diagnostics, but not in every tick.

    :param name_of: returns libvirt's name of a guest, by UUID.
    """

    def __init__(self, name_of: Callable[[str], str]) -> None:
        self._name_of = name_of
        # Last tick with the diagnostic, by UUID and kind.
        self._last_ticks: dict[tuple[str, str], int] = {}
        self._full = False

    def report(
        self, tick: int, diagnostics: Iterable[model.Diagnostic]
    ) -> None:
        """Log the diagnostics of a tick that are new.

        :param tick: number of the tick.
        """
        last_ticks = self._last_ticks
        for diagnostic in diagnostics:
            key = (diagnostic.uuid, _kind(diagnostic.reason))
            if key not in last_ticks and not self._log(tick, diagnostic):
                continue
            last_ticks[key] = tick
        if last_ticks and tick % REPEAT_TICKS == 0:
            self._forget(tick)

    def _log(self, tick: int, diagnostic: model.Diagnostic) -> bool:
        """Log a diagnostic, unless too many are remembered.

        :returns: whether it was logged.
        """
        if len(self._last_ticks) >= MAX_REMEMBERED:
            self._forget(tick)
        if len(self._last_ticks) >= MAX_REMEMBERED:
            if not self._full:
                LOG.warning('Further diagnostics of VMs are not logged')
            self._full = True
            return False
        self._full = False
        if diagnostic.uuid:
            LOG.warning(
                'VM %s: %s', self._name_of(diagnostic.uuid), diagnostic.reason
            )
        else:
            LOG.warning('%s', diagnostic.reason)
        return True

    def _forget(self, tick: int) -> None:
        self._last_ticks = {
            key: last_tick
            for key, last_tick in self._last_ticks.items()
            if tick - last_tick < REPEAT_TICKS
        }
