# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Reconcile all domains periodically, in case libvirt lost an event."""

import logging
import threading
from collections.abc import Callable
from typing import Any

import libvirt

from nova_vhpc.agent.context import HostContext
from nova_vhpc.agent.lifecycle import restore_queue

LOG = logging.getLogger(__name__)

SPREAD = 0.5
"""Part of the period, 0 to 1, over which a resync is spread."""


class Resync:
    """Has every domain reconciled periodically, in a thread of its own.

    :param restore_queue: retries guests that could not be restored yet, and
        forgets domains that are gone.
    :param enqueue: has a domain reconciled; returns at once.
    :ivar has_listed: whether libvirt has ever said which domains run.
    """

    def __init__(
        self,
        context: HostContext,
        options: Any,
        restore_queue: restore_queue.RestoreQueue,
        enqueue: Callable[[str], None],
    ) -> None:
        self._context = context
        self._options = options
        self._restore_queue = restore_queue
        self._enqueue = enqueue
        self._wake = threading.Event()
        self.has_listed = False

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(
            target=self._run, name='reconcile', daemon=True
        ).start()

    def wake(self) -> None:
        """Resync now, or end the thread if the agent is ending."""
        self._wake.set()

    def _run(self) -> None:
        while not self._context.permission.ending.is_set():
            pause_s = self._options.reconcile_period * (1 - SPREAD)
            woken = self._wake.wait(pause_s)
            self._wake.clear()
            if self._context.permission.ending.is_set():
                return
            if not self._context.connection.up:
                continue
            spread_s = 0 if woken else self._options.reconcile_period * SPREAD
            try:
                self._resync(spread_s)
            except libvirt.libvirtError as error:
                self._context.connection.failed(error)
            except Exception:
                LOG.exception('Resync failed, will retry')

    def _resync(self, spread_s: float) -> None:
        """Have all domains reconciled.

        :param spread_s: time over which the reconciles are spread, in seconds,
            because a hundred at once would delay a tick; 0 for all at once.
        """
        running = {
            domain.UUIDString()
            for domain in self._context.connection.get().listAllDomains(
                libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE
            )
        }
        self.has_listed = True
        guests = self._context.guests
        guests.forget_stopped(running)
        todo = running | guests.by_uuid.keys()
        for uuid in todo:
            self._enqueue(uuid)
            # After the reconcile, which finds out whether it still runs.
            self._restore_queue.retry(uuid)
            if spread_s and self._wake.wait(spread_s / len(todo)):
                # There is a new connection, or the agent is ending.
                return
        # Records of domains that stopped, maybe while no agent ran. Last,
        # because hundreds take seconds, and running domains may be throttled.
        for uuid in self._context.journal.uuids():
            # A guest's record is removed by its reconcile, after other calls.
            if uuid not in running and uuid not in guests.by_uuid:
                self._restore_queue.forget_record(uuid)
