# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Check what probes measured: they are plugins, and counters may be reset."""

import dataclasses

from nova_vhpc.control import model
from nova_vhpc.control.validation import numbers, text


def clean(sample: object) -> tuple[model.Sample, list[str]]:
    """Return the sample without impossible values, and what was wrong.

    :returns: the same object if nothing is wrong with it.
    """
    if isinstance(sample, model.Sample) and _is_valid(sample):
        return sample, []
    if not isinstance(sample, model.Sample):
        return model.Sample(), [f'{text.short(sample)} in place of a Sample']
    faults: list[str] = []
    changes: dict[str, None] = {}
    for name in ('sync_latency_us', 'io_events', 'elapsed_us'):
        value = getattr(sample, name)
        if value is not None and not numbers.is_measurable(value):
            faults.append(f'{name} = {text.short(value)}')
            changes[name] = None
    for name in ('vcpu_run_us', 'vcpu_wait_us', 'vcpu_runs'):
        values = getattr(sample, name)
        if values is not None and not (
            isinstance(values, tuple | list)
            and all(map(numbers.is_measurable, values))
        ):
            faults.append(f'{name} has impossible values')
            changes[name] = None
    return dataclasses.replace(sample, **changes), faults


def _is_valid(sample: model.Sample) -> bool:
    """Return whether nothing is wrong; quick, because nearly always so."""
    try:
        for value in (
            sample.sync_latency_us,
            sample.io_events,
            sample.elapsed_us,
        ):
            # A comparison with NaN is false. A value that cannot be added to
            # a float, such as a Decimal, would fail a policy that adds it.
            if value is not None and not 0 <= value + 0.0 <= numbers.MAX:
                return False
        for values in (
            sample.vcpu_run_us,
            sample.vcpu_wait_us,
            sample.vcpu_runs,
        ):
            # sum() and min() run in C. NaN and infinity show in the sum;
            # only then are the values looked at one by one.
            if not values:
                if values not in (None, (), []):
                    return False
            elif not isinstance(values, tuple | list) or (
                not (sum(values, 0.0) <= numbers.MAX and min(values) >= 0)
                and not all(map(numbers.is_measurable, values))
            ):
                return False
    except (AttributeError, TypeError, ValueError, ArithmeticError):
        # Not a number, or a whole number too great to be added up.
        return False
    return True
