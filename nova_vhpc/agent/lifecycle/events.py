# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Enqueue domains that libvirt's events are about."""

import logging
import re
from collections.abc import Callable
from typing import Any

import libvirt

from nova_vhpc.agent.guests import registry
from nova_vhpc.agent.guests.guest import Guest
from nova_vhpc.agent.journal import store, written_values
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.linux import cpus

LOG = logging.getLogger(__name__)

TUNABLE_NAMES = {
    'cputune.vcpu_period': cputune.PERIOD,
    'cputune.vcpu_quota': cputune.QUOTA,
    'cputune.cpu_shares': cputune.SHARES,
}

_PIN = re.compile(r'cputune\.vcpupin(\d+)')
"""Event field with the pins of one vCPU, as a CPU set in a string."""


class Events:
    """Receives libvirt's events; its methods run in libvirt's event thread.

    :param guests: the managed guests, and what the agent wrote to them.
    :param enqueue: has a domain reconciled; returns at once.
    """

    def __init__(
        self,
        guests: registry.GuestRegistry,
        enqueue: Callable[[str], None],
    ) -> None:
        self._guests = guests
        self._enqueue = enqueue

    def listen(self, conn: Any) -> None:
        """Register for all events that may need a reconcile.

        :raises libvirt.libvirtError: the connection is lost.
        """
        conn.domainEventRegisterAny(
            None,
            libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE,
            self._on_lifecycle,
            None,
        )
        for name, callback in (
            ('VIR_DOMAIN_EVENT_ID_TUNABLE', self._on_tunable),
            ('VIR_DOMAIN_EVENT_ID_METADATA_CHANGE', self._on_metadata),
            ('VIR_DOMAIN_EVENT_ID_JOB_COMPLETED', self._on_other),
            ('VIR_DOMAIN_EVENT_ID_DEVICE_ADDED', self._on_other),
            ('VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED', self._on_other),
            ('VIR_DOMAIN_EVENT_ID_MIGRATION_ITERATION', self._on_other),
        ):
            try:
                conn.domainEventRegisterAny(
                    None, getattr(libvirt, name), callback, None
                )
            except (AttributeError, libvirt.libvirtError) as error:
                LOG.debug('libvirt has no %s: %s', name, error)

    def _on_lifecycle(
        self, conn: Any, domain: Any, event: int, detail: int, opaque: Any
    ) -> None:
        self._enqueue(domain.UUIDString())

    def _on_metadata(
        self, conn: Any, domain: Any, kind: int, uri: str, opaque: Any
    ) -> None:
        if uri != store.METADATA_URI:
            self._enqueue(domain.UUIDString())

    def _on_other(
        self, conn: Any, domain: Any, detail: Any, opaque: Any
    ) -> None:
        self._enqueue(domain.UUIDString())

    def _on_tunable(
        self, conn: Any, domain: Any, values: dict[str, Any], opaque: Any
    ) -> None:
        """Enqueue a guest for an external change, not for the agent's own."""
        guest = self._guests.by_uuid.get(domain.UUIDString())
        if guest is None:
            return
        expected = written_values.values(guest.expected)
        external = False
        for tunable, reported in values.items():
            name, value = _managed(tunable, reported)
            if name in expected and value == expected[name]:
                continue
            if name == cputune.SHARES:
                if value not in guest.event_history.written_shares:
                    self._note_shares(guest, domain, reported)
                elif guest.journalled:
                    continue
            elif name:
                self._note(guest, domain, name, value)
            external = True
        if external:
            self._enqueue(guest.uuid)

    @staticmethod
    def _note_shares(guest: Guest, domain: Any, value: int) -> None:
        """Record external shares that a window may replace before a check."""
        if (
            cputune.SHARES not in guest.external
            # An event of an earlier run says nothing about this one.
            and domain.ID() == guest.domain_id
        ):
            guest.event_history.external_shares = value

    @staticmethod
    def _note(
        guest: Guest,
        domain: Any,
        name: str,
        value: written_values.Value,
    ) -> None:
        """Record an external value, which the agent may have just replaced."""
        if (
            name not in guest.external
            and not guest.event_history.wrote(name, value)
            and written_values.values(guest.original).get(name) != value
            and domain.ID() == guest.domain_id
        ):
            # A new dictionary, because a check may be reading the old one.
            guest.event_history.external = {
                **guest.event_history.external,
                name: value,
            }


def _managed(tunable: str, reported: Any) -> tuple[str, written_values.Value]:
    """Return the managed value that an event field reports, with its name.

    :returns: an empty name for a value that the agent never writes.
    """
    name = TUNABLE_NAMES.get(tunable)
    if name is not None:
        return name, cputune.plain(name, int(reported))
    pin = _PIN.fullmatch(tunable)
    if pin is None:
        return '', 0
    try:
        return cputune.pin_name(int(pin[1])), cpus.parse_cpu_set(reported)
    except ValueError:
        return '', 0
