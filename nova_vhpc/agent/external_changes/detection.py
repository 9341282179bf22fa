# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Which managed values of a guest were changed externally."""

from collections.abc import Mapping

from nova_vhpc.agent.guests.guest import Guest
from nova_vhpc.agent.journal import written_values
from nova_vhpc.agent.libvirt import cputune


def found_or_reported(
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
    changed = [] if guest.uncertain else found(guest, expected, now)
    changed += [
        name
        for name in (
            *(() if shares is None else (cputune.SHARES,)),
            *guest.event_history.overwritten(now),
        )
        if name not in guest.unmanaged_fields and name not in changed
    ]
    return changed


def found(
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


def overwritten(
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
