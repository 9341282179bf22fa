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

"""Which of the values in a VM may be ours, by what the journal has noted.

After a crash, what somebody else has set meanwhile must not be put back with
what we wrote. So each value is in the journal before it is in the VM. They
are never forgotten: then most writes are of a known one, and cost nothing.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.control import model
from nova_vhpc.linux import cpus

Value = int | frozenset[int]

WrittenValues = Mapping[str, frozenset[Value] | None]
"""By name, as in :func:`cputune.names`: what we may have written; None for
anything. A name that is missing was never written."""

MOST_VALUES = 64
"""More of one name are not noted one by one: anything may be ours, then."""


def with_tune(written: WrittenValues, tune: model.CpuTune) -> WrittenValues:
    """Note the values of a cputune that is about to be written.

    :returns: the same object if all are known.
    """
    return with_values(written, of_tune(tune))


def with_values(
    written: WrittenValues, more_values: Mapping[str, Value]
) -> WrittenValues:
    """The same for any values, by name."""
    fresh: dict[str, frozenset[Value] | None] = {}
    for name, value in more_values.items():
        known = written.get(name, frozenset())
        if known is not None and value not in known:
            more = known | {value}
            fresh[name] = None if len(more) > MOST_VALUES else more
    return {**written, **fresh} if fresh else written


def with_original(
    written: WrittenValues, original: cputune.Cputune
) -> WrittenValues:
    """Note what is written where all is put back."""
    return with_tune(written, original.tune(len(original.vcpupins)))


def may_be(written: WrittenValues | None, name: str, value: Value) -> bool:
    """Whether a value may be one that we wrote.

    :param written: None if that is not known: then all may be ours.
    """
    if written is None:
        return True
    known = written.get(name, frozenset())
    return known is None or value in known


def theirs(
    written: WrittenValues | None,
    original: cputune.Cputune,
    now: cputune.Cputune,
) -> frozenset[str]:
    """Names of what is neither as it was nor as we made it.

    :param written: see :func:`may_be`.
    """
    was, is_now = values(original), values(now)
    return frozenset(
        name
        for name, value in is_now.items()
        # A vCPU that was plugged in since then is as it came.
        if name in was
        and value != was[name]
        and not may_be(written, name, value)
    )


def found(
    written: WrittenValues, original: cputune.Cputune, now: cputune.Cputune
) -> frozenset[str]:
    """Names of what is not as it was, and may be as we made it."""
    was, is_now = values(original), values(now)
    both = was.keys() & is_now.keys()
    changed = {name for name in both if was[name] != is_now[name]}
    return frozenset(changed - theirs(written, original, now))


def to_dict(written: WrittenValues | None) -> dict[str, Any] | None:
    """For JSON."""
    if written is None:
        return None
    return {
        name: None
        if values is None
        else sorted(
            sorted(value) if isinstance(value, frozenset) else value
            for value in values
        )
        for name, values in written.items()
    }


def from_dict(data: Any) -> WrittenValues | None:
    """From JSON.

    :raises AttributeError, TypeError, ValueError, OverflowError: if it is
        not what :func:`to_dict` makes.
    """
    if data is None:
        return None
    return {
        str(name): None
        if values is None
        else frozenset(_value(str(name), value) for value in values)
        for name, values in data.items()
    }


def _value(name: str, data: Any) -> Value:
    """Return one value from JSON.

    :raises TypeError, ValueError, OverflowError: no such value can have
        been written.
    """
    if name.startswith(cputune.PINS):
        pin = frozenset(int(cpu) for cpu in data)
        if not pin or min(pin) < 0 or max(pin) >= cpus.MOST_CPUS:
            raise ValueError(f'{name} on CPUs that no host has')
        return pin
    value = int(data)
    if abs(value) > cputune.LARGEST_VALUE:
        raise ValueError(f'{name} with a value that libvirt cannot take')
    return value


def of_tune(tune: model.CpuTune) -> dict[str, Value]:
    """Values of a cputune that is to be written, by name."""
    found: dict[str, Value] = {}
    for name, value in (
        (cputune.PERIOD, tune.period_us),
        (cputune.QUOTA, tune.quota_us),
        (cputune.SHARES, tune.shares),
    ):
        if value is not None:
            found[name] = cputune.plain(name, value)
    for vcpu, pin in enumerate(tune.vcpu_pins or ()):
        found[cputune.pin_name(vcpu)] = pin
    return found


def values(tune: cputune.Cputune) -> dict[str, Value]:
    """All that a domain has of what we may write, by name."""
    return of_tune(
        model.CpuTune(
            tune.parameters.get(cputune.PERIOD),
            tune.parameters.get(cputune.QUOTA),
            tune.parameters.get(cputune.SHARES),
            tune.vcpupins,
        )
    )


def replaced(
    tune: cputune.Cputune, new_values: Mapping[str, Value]
) -> cputune.Cputune:
    """Return a cputune with some of its values replaced, by name."""
    return dataclasses.replace(
        tune,
        parameters={
            **tune.parameters,
            **{n: v for n, v in new_values.items() if isinstance(v, int)},
        },
        vcpupins=tuple(
            value if isinstance(value, frozenset) else pin
            for pin, value in (
                (pin, new_values.get(cputune.pin_name(vcpu)))
                for vcpu, pin in enumerate(tune.vcpupins)
            )
        ),
    )
