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

"""Which of the managed values of a VM of ours somebody else has set."""

from collections.abc import Mapping

from nova_vhpc.agent.guests.guest import Guest
from nova_vhpc.agent.journal import written_values
from nova_vhpc.agent.libvirt import cputune


def found_or_told(
    guest: Guest,
    old: cputune.Cputune,
    now: cputune.Cputune,
    shares: int | None,
) -> list[str]:
    """Names of those that are in force, or that an event has told of.

    :param old: what we know of.
    :param now: what was read.
    :param shares: theirs by an event, maybe written over since.
    """
    # After a failed write, what differs is what is left of it.
    changed = [] if guest.uncertain else found(guest, old, now)
    if (
        shares is not None
        and cputune.SHARES not in guest.unmanaged_fields
        and cputune.SHARES not in changed
    ):
        changed.append(cputune.SHARES)
    changed += [
        name
        for name in guest.event_history.written_over(now)
        if name not in guest.unmanaged_fields and name not in changed
    ]
    return changed


def found(
    guest: Guest, old: cputune.Cputune, now: cputune.Cputune
) -> list[str]:
    """Names of those that are in force, and not what we know of.

    :param old: what we know of.
    :param now: what was read.
    """
    changed = [
        name
        for name in (cputune.PERIOD, cputune.QUOTA, cputune.SHARES)
        if name not in guest.unmanaged_fields
        and not cputune.same(
            name, now.parameters.get(name), old.parameters.get(name)
        )
        and not (
            name == cputune.SHARES
            and guest.may_be_ours(now.parameters.get(name))
        )
    ]
    changed += [
        cputune.pin_name(vcpu)
        for vcpu, (pin, before) in enumerate(
            zip(now.vcpupins, old.vcpupins, strict=False)
        )
        if pin != before
        and cputune.pin_name(vcpu) not in guest.unmanaged_fields
    ]
    return changed


def overwritten(
    guest: Guest, now: cputune.Cputune, shares: int | None
) -> Mapping[str, written_values.Value]:
    """Return external values that a write of the agent has replaced, by name.

    :param now: what was read.
    :param shares: external ``cpu_shares`` that an event reported, or None.
    """
    history = guest.event_history
    values = dict(history.written_over(now))
    # Other shares that the agent wrote earlier are an external choice now.
    in_force = now.parameters.get(cputune.SHARES)
    if shares is not None and in_force == history.last.get(cputune.SHARES):
        values[cputune.SHARES] = shares
    return values
