# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Apply ``[vhpc_agent] foreign_changes`` to external changes of a guest.

With ``respect`` the whole guest is handed back: its other values are restored
and the agent does not manage it until the domain starts again or an operator
resumes it. With ``override`` the agent writes its own values again.
"""

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Mapping
from typing import Any

from nova_vhpc.agent.context import HostContext
from nova_vhpc.agent.external_changes import (
    cpu_hotplug,
    misdirected_writes,
)
from nova_vhpc.agent.guests.guest import Guest, Hold
from nova_vhpc.agent.journal import store, written_values
from nova_vhpc.agent.journal.record import JournalError
from nova_vhpc.agent.libvirt import cputune

LOG = logging.getLogger(__name__)

RESUME_SECONDS = 5.0
"""Longest time to wait for a guest's lock when it is resumed, in seconds."""


class ExternalChangePolicy:
    """Detects external changes, and respects or overrides them.

    :param options: ``[vhpc_agent]``, of which ``foreign_changes`` decides.
    :param cpu_hotplug: adapts pins to host CPUs switched on or off.
    :param forget_shares: has windows write a guest's ``cpu_shares`` again,
        even the same value; takes its UUID.
    :ivar count: number of values that were changed externally.
    :ivar handed_back: number of servers that were handed back.
    """

    def __init__(
        self,
        context: HostContext,
        options: Any,
        cpu_hotplug: cpu_hotplug.CpuHotplug,
        misdirected: misdirected_writes.MisdirectedWrites,
        forget_shares: Callable[[str], None],
    ) -> None:
        self._context = context
        self._options = options
        self._cpu_hotplug = cpu_hotplug
        self._misdirected = misdirected
        self._forget_shares = forget_shares
        self.count = 0
        self.handed_back = 0

    def check(self, guest: Guest) -> None:
        """Find external changes of a guest and apply the option.

        If the guest is ``external`` and ``journalled`` afterwards, the caller
        must restore it.

        :raises RunChangedError: the domain was started again meanwhile.
        """
        with guest.lock:
            if self._is_as_expected(guest):
                return
            # No window may write between the read and the comparison.
            guest.forbid_lock_free_weights()
            history = guest.event_history
            shares, external = history.external_shares, history.external
            self._check(guest, shares)
            # A newer event is kept for the check that it has caused.
            if history.external_shares == shares:
                history.external_shares = None
            if history.external is external:
                history.external = {}

    def _is_as_expected(self, guest: Guest) -> bool:
        """Return whether nothing has changed, without stopping windows.

        That is nearly always so; everything else is left to :meth:`_check`.
        """
        if (
            not guest.lock_free_weights
            or guest.event_history.external_shares is not None
            or guest.event_history.external
            or guest.uncertain
            or guest.external
        ):
            return False
        old, writes = guest.expected, guest.writes
        now = cputune.read(guest.domain, old)
        return (
            self._context.connection.runs(guest.uuid, guest.domain_id)
            and len(now.vcpupins) == len(guest.original.vcpupins)
            and not self._cpu_hotplug.new_online_cpus(guest)
            and not _found(guest, old, now)
            and (
                now.parameters.get(cputune.SHARES)
                == old.parameters.get(cputune.SHARES)
                # A window wrote meanwhile: the read may be of either value.
                or guest.writes != writes
            )
        )

    def _check(self, guest: Guest, shares: int | None) -> None:
        """Compare what is in force with what is expected; the lock is held.

        :param shares: external ``cpu_shares`` that an event reported, or None.
            A window may have replaced them since.
        """
        old = guest.expected
        now = cputune.read(guest.domain, old if guest.journalled else None)
        if not self._context.connection.runs(guest.uuid, guest.domain_id):
            # Restarted since it was looked up: adoption reads the new run.
            return
        self._cpu_hotplug.follow(guest, now)
        old = guest.expected
        if not guest.journalled:
            if guest.external and self._was_overwritten(guest, now, shares):
                return
            # The agent has not written: these are the original settings.
            changed = _found(guest, old, now)
            guest.uncertain = False
            guest.set_expected(now)
            guest.set_original(now)
            if changed:
                guest.set_allowed_cpus(now.cpus)
            if guest.copy_for_destination and not guest.is_floating:
                # Its pins were changed, and the copy says that they float.
                store.remove_metadata(guest.domain)
                guest.copy_for_destination = False
            return
        if len(now.vcpupins) != len(guest.original.vcpupins):
            self._count_vcpus(guest, now)
        changed = _found_or_reported(guest, old, now, shares)
        guest.uncertain = False
        guest.set_expected(now)
        if changed:
            self._apply_option(guest, changed, shares)
        elif guest.in_force.shares != old.parameters.get(cputune.SHARES):
            # The agent's own value, but not the window player's last one.
            self._forget_shares(guest.uuid)

    def _was_overwritten(
        self, guest: Guest, now: cputune.Cputune, shares: int | None
    ) -> bool:
        """Return whether the hand-back has replaced a further external value.

        External values are mostly set one after the other, as by several
        calls of ``virsh vcpupin``. If one is set just before the hand-back
        writes its original, only libvirt's event reports it. The guest is
        then handed back again, with that value.
        """
        values = _overwritten(guest, now, shares)
        changed = [name for name in values if name not in guest.external]
        if changed:
            guest.set_expected(now)
            guest.set_original(now)
            guest.journalled = True
            self._hand_back(guest, changed, shares)
        return bool(changed)

    def _count_vcpus(self, guest: Guest, now: cputune.Cputune) -> None:
        """Add the pins of hot-plugged vCPUs to the original settings.

        The agent writes to new vCPUs only once they are expected, so their
        present pins are the original ones.
        """
        original, pins = guest.original, guest.original.vcpupins
        if len(now.vcpupins) > len(pins):
            original = dataclasses.replace(
                original, vcpupins=pins + now.vcpupins[len(pins) :]
            )
            record = dataclasses.replace(guest.record(), original=original)
            self._context.journal.save(record)
            self._misdirected.put_metadata(guest, record)
        guest.set_original(original)

    def respect_unchecked(self, guest: Guest) -> None:
        """Respect external changes since the last check, before a restore.

        The caller holds the guest's lock.
        """
        if self._options.foreign_changes == 'override':
            return
        now = cputune.read(guest.domain, guest.expected)
        self._cpu_hotplug.follow(guest, now, save=False)
        shares = guest.event_history.external_shares
        changed = _found_or_reported(guest, guest.expected, now, shares)
        guest.set_expected(now)
        if changed:
            self._hand_back(guest, changed, shares)

    def _apply_option(
        self, guest: Guest, changed: list[str], shares: int | None
    ) -> None:
        """Override the changed values, or hand the guest back.

        :param changed: names of values that were changed externally.
        :param shares: external ``cpu_shares`` that an event reported, or None.
        """
        if self._options.foreign_changes != 'override':
            self._hand_back(guest, changed, shares)
            return
        self.count += len(changed)
        LOG.warning(
            'VM %s: external change of %s; the value of the agent is written '
            'again',
            guest.name,
            ', '.join(changed),
        )
        if cputune.SHARES in changed:
            self._forget_shares(guest.uuid)

    def _hand_back(
        self, guest: Guest, changed: list[str], shares: int | None
    ) -> None:
        """Stop managing a guest; its restore is up to the caller.

        External values stay. One that a write of the agent has replaced
        becomes the original setting, so that the restore writes it.
        """
        self.count += len(changed)
        if not guest.external:
            self.handed_back += 1
            LOG.warning(
                'VM %s: external change of %s; all other values are restored, '
                'and it is not managed until it starts anew or is resumed',
                guest.name,
                ', '.join(changed),
            )
        guest.holds.add(Hold.EXTERNAL)
        guest.external |= frozenset(changed)
        values = _overwritten(guest, guest.expected, shares)
        values = {n: v for n, v in values.items() if n in changed}
        guest.overwritten -= frozenset(changed)
        guest.overwritten |= values.keys()
        guest.set_original(written_values.replaced(guest.original, values))
        record = guest.record()
        # Without the record, a later restore still leaves values alone that
        # are neither original nor written by the agent.
        with contextlib.suppress(JournalError):
            self._context.journal.save(record)
        self._misdirected.put_metadata(guest, record)

    def resume(self, guest: Guest) -> str:
        """Manage a guest again that was handed back.

        :returns: why that is not possible now; empty if it is done.
        """
        if not guest.lock.acquire(timeout=RESUME_SECONDS):
            return 'another libvirt call about it is not done; try again'
        try:
            if not guest.external:
                return ''
            if guest.journalled:
                return 'not all of its values are restored yet; try again'
            self._context.journal.remove(guest.uuid)
            guest.external = frozenset()
            return ''
        except JournalError as error:
            return str(error)
        finally:
            guest.lock.release()


def _found_or_reported(
    guest: Guest,
    expected: cputune.Cputune,
    now: cputune.Cputune,
    shares: int | None,
) -> list[str]:
    """Return names of external changes, in force or reported by an event.

    :param expected: cputune that the agent read or wrote last.
    :param now: cputune in force.
    :param shares: external ``cpu_shares`` that an event reported, or None.
    """
    # After a failed write, differences may be the agent's own.
    changed = [] if guest.uncertain else _found(guest, expected, now)
    changed += [
        name
        for name in (
            *(() if shares is None else (cputune.SHARES,)),
            *guest.event_history.overwritten(now),
        )
        if name not in guest.unmanaged_fields and name not in changed
    ]
    return changed


def _found(
    guest: Guest, expected: cputune.Cputune, now: cputune.Cputune
) -> list[str]:
    """Return names of values in force that are not the expected ones.

    :param expected: cputune that the agent read or wrote last.
    :param now: cputune in force.
    """
    changed = [
        name
        for name in (cputune.PERIOD, cputune.QUOTA, cputune.SHARES)
        if not cputune.same(
            name, now.parameters.get(name), expected.parameters.get(name)
        )
        and not (
            name == cputune.SHARES
            and guest.may_be_agents_shares(now.parameters.get(name))
        )
    ]
    changed += [
        cputune.pin_name(vcpu)
        for vcpu, (pin, before) in enumerate(
            zip(now.vcpupins, expected.vcpupins, strict=False)
        )
        if pin != before
    ]
    return [name for name in changed if name not in guest.unmanaged_fields]


def _overwritten(
    guest: Guest, now: cputune.Cputune, shares: int | None
) -> Mapping[str, written_values.Value]:
    """Return external values that a write of the agent has replaced, by name.

    :param now: cputune in force.
    :param shares: external ``cpu_shares`` that an event reported, or None.
    """
    history = guest.event_history
    values = dict(history.overwritten(now))
    # Other shares that the agent wrote earlier are an external choice now.
    in_force = now.parameters.get(cputune.SHARES)
    if shares is not None and in_force == history.last.get(cputune.SHARES):
        values[cputune.SHARES] = shares
    return values
