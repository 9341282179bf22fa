# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Values that the agent may have written to a guest.

After a crash, an external change must not be replaced by the original value.
Therefore the journal holds each value before it is written. Values are never
removed from it, so that most writes are of a known value and need no new
record.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.control import model
from nova_vhpc.linux import cpus

Value = int | frozenset[int]

WrittenValues = Mapping[str, frozenset[Value] | None]
"""Values that may have been written, by name as in :func:`cputune.names`.

None stands for any value; a name that is missing was never written."""

MOST_VALUES = 64
"""Most values of one name that are recorded; with more, any value counts as
written."""


def with_tune(written: WrittenValues, tune: model.CpuTune) -> WrittenValues:
    """Add the values of a cputune that is about to be written.

    :returns: the same object if all are in it already.
    """
    return with_values(written, of_tune(tune))


def with_values(
    written: WrittenValues, more_values: Mapping[str, Value]
) -> WrittenValues:
    """Add values that are about to be written, by name.

    :returns: the same object if all are in it already.
    """
    extended: dict[str, frozenset[Value] | None] = {}
    for name, value in more_values.items():
        known = written.get(name, frozenset())
        if known is not None and value not in known:
            more = known | {value}
            extended[name] = None if len(more) > MOST_VALUES else more
    return {**written, **extended} if extended else written


def may_be_written(written: WrittenValues, name: str, value: Value) -> bool:
    """Return whether the agent may have written a value."""
    known = written.get(name, frozenset())
    return known is None or value in known


def external(
    written: WrittenValues, original: cputune.Cputune, now: cputune.Cputune
) -> frozenset[str]:
    """Return names of values that are neither original nor the agent's.

    :param now: cputune in force.
    """
    return frozenset(
        name
        for name, value in _changed(original, now).items()
        if not may_be_written(written, name, value)
    )


def left_by_agent(
    written: WrittenValues, original: cputune.Cputune, now: cputune.Cputune
) -> frozenset[str]:
    """Return names of values that are not original and may be the agent's.

    :param now: cputune in force.
    """
    changed = frozenset(_changed(original, now))
    return changed - external(written, original, now)


def _changed(
    original: cputune.Cputune, now: cputune.Cputune
) -> dict[str, Value]:
    """Return values in force that are not original, by name.

    vCPUs that were plugged in since have no original value.
    """
    before = values(original)
    return {
        name: value
        for name, value in values(now).items()
        if name in before and value != before[name]
    }


def to_dict(written: WrittenValues) -> dict[str, Any]:
    """Return the written values for JSON."""
    return {
        name: None
        if values is None
        else sorted(
            sorted(value) if isinstance(value, frozenset) else value
            for value in values
        )
        for name, values in written.items()
    }


def from_dict(data: Any) -> WrittenValues:
    """Return the written values that :func:`to_dict` made JSON of.

    :raises AttributeError, TypeError, ValueError, OverflowError: the JSON is
        something else.
    """
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
    """Return the values of a cputune that is to be written, by name."""
    by_name: dict[str, Value] = {}
    for name, value in (
        (cputune.PERIOD, tune.period_us),
        (cputune.QUOTA, tune.quota_us),
        (cputune.SHARES, tune.shares),
    ):
        if value is not None:
            by_name[name] = cputune.plain(name, value)
    for vcpu, pin in enumerate(tune.vcpu_pins or ()):
        by_name[cputune.pin_name(vcpu)] = pin
    return by_name


def values(tune: cputune.Cputune) -> dict[str, Value]:
    """Return the managed values of a domain's cputune, by name."""
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
