# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Quarantine of guests whose writes fail or whose libvirt calls hang."""

import logging
import time
from typing import Any

from nova_vhpc.agent.guests import registry
from nova_vhpc.agent.guests.guest import Guest

LOG = logging.getLogger(__name__)

HANGS = 'a libvirt call hangs'


class Quarantine:
    """Counts failures, and quarantines guests that have too many.

    :ivar late_calls: number of libvirt calls beyond their deadline.
    """

    def __init__(self, options: Any, guests: registry.GuestRegistry) -> None:
        self._options = options
        self._guests = guests
        self._hanging: set[str] = set()
        self.late_calls = 0

    def add_failure(self, guest: Guest, problem: str) -> None:
        """Count a write that failed; quarantine the guest after several."""
        first = guest.failures.in_row == 0
        if guest.failures.add(
            problem,
            self._options.quarantine_failures,
            self._options.quarantine_seconds,
        ):
            LOG.warning(
                'VM %s: in quarantine for %.0f s after %d failures: %s',
                guest.name,
                guest.failures.quarantined_until - time.monotonic(),
                guest.failures.count,
                problem,
            )
        elif first:
            LOG.warning(
                'VM %s: write failed, will retry: %s', guest.name, problem
            )

    def call_is_late(self, uuid: str) -> None:
        """Quarantine a guest because a libvirt call about it hangs."""
        self.late_calls += 1
        if uuid not in self._hanging:
            # Logged once: a window's call and the executor's wait together.
            self._hanging.add(uuid)
            LOG.warning(
                'VM %s: a libvirt call takes longer than %g s',
                self._guests.name(uuid),
                self._options.call_deadline,
            )
        guest = self._guests.by_uuid.get(uuid)
        if guest is not None:
            guest.failures.add(HANGS, 1, self._options.quarantine_seconds)
        else:
            self._guests.refuse_unknown(uuid, HANGS)

    def calls_returned(self, uuid: str) -> None:
        """End that quarantine: the last call that hung has returned."""
        self._hanging.discard(uuid)
        self._guests.end_refusal(uuid, HANGS)
        guest = self._guests.by_uuid.get(uuid)
        if guest is not None and guest.failures.problem == HANGS:
            guest.failures.quarantined_until = 0.0
            guest.failures.problem = ''
