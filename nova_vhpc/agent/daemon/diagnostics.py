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

"""What the controller could not use, or do: told in the log, once each."""

import functools
import logging
import re
from collections.abc import Callable, Iterable

from nova_vhpc.control import model

LOG = logging.getLogger(__name__)

MOST = 1000
"""DiagnosticsLog that are remembered; a host has fewer VMs."""

AGAIN_TICKS = 600
"""Ticks without a remark, a minute as shipped, until it is news again."""

_VALUES = re.compile(r'0x[0-9a-f]+|[0-9a-f]{8}-[0-9a-f-]{27}|\d[\d.e+-]*')


@functools.lru_cache(maxsize=4096)
def _kind(reason: str) -> str:
    """A remark without its values: with others it is the same again."""
    return _VALUES.sub('#', reason)


class DiagnosticsLog:
    """Remembers what was told, so that it is not told in each tick.

    :param name_of: libvirt's name of a VM, by uuid.
    """

    def __init__(self, name_of: Callable[[str], str]) -> None:
        self._name_of = name_of
        # When it was last made, by VM and kind.
        self._last_seen: dict[tuple[str, str], int] = {}
        self._full = False

    def report(self, tick: int, ignored: Iterable[model.Ignored]) -> None:
        """Take the remarks of one tick."""
        made = self._last_seen
        for remark in ignored:
            key = (remark.uuid, _kind(remark.reason))
            if key not in made and not self._log(tick, remark):
                continue
            made[key] = tick
        if made and tick % AGAIN_TICKS == 0:
            self._forget(tick)

    def _log(self, tick: int, remark: model.Ignored) -> bool:
        """Log a remark that is news; False where there are too many."""
        if len(self._last_seen) >= MOST:
            self._forget(tick)
        if len(self._last_seen) >= MOST:
            if not self._full:
                LOG.warning('Further remarks on VMs are not logged for now')
            self._full = True
            return False
        self._full = False
        if remark.uuid:
            LOG.warning('VM %s: %s', self._name_of(remark.uuid), remark.reason)
        else:
            LOG.warning('%s', remark.reason)
        return True

    def _forget(self, tick: int) -> None:
        self._last_seen = {
            key: last
            for key, last in self._last_seen.items()
            if tick - last < AGAIN_TICKS
        }
