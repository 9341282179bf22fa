# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Check an actuator's limits: actuators are plugins."""

import dataclasses

from nova_vhpc.control import model

LIBVIRT_PERIOD_US = (1_000, 1_000_000)
LIBVIRT_QUOTA_US = (1_000, 17_592_186_044_415)
LIBVIRT_SHARES = (1, 262_144)
"""The least and the greatest value that libvirt takes; no actuator can widen
these ranges."""

_TYPES = {
    field.name: type(field.default)
    for field in dataclasses.fields(model.ActuatorLimits)
}


def check(limits: object) -> tuple[model.ActuatorLimits, tuple[str, ...]]:
    """Return the limits, cut down to libvirt's, and what was wrong.

    Limits that leave no value between them are kept: such an actuator says
    that it writes nothing.
    """
    faults: tuple[str, ...] = ()
    if not isinstance(limits, model.ActuatorLimits) or any(
        type(getattr(limits, name)) is not kind
        for name, kind in _TYPES.items()
    ):
        faults = ("the actuator's limits; taken as libvirt's own",)
        limits = model.ActuatorLimits()
    within = dataclasses.replace(
        limits,
        min_period_us=max(limits.min_period_us, LIBVIRT_PERIOD_US[0]),
        max_period_us=min(limits.max_period_us, LIBVIRT_PERIOD_US[1]),
        min_quota_us=max(limits.min_quota_us, LIBVIRT_QUOTA_US[0]),
        max_quota_us=min(limits.max_quota_us, LIBVIRT_QUOTA_US[1]),
        # A number beyond what a float holds would fail any policy.
        min_shares=min(
            max(limits.min_shares, LIBVIRT_SHARES[0]), LIBVIRT_SHARES[1] + 1
        ),
        max_shares=min(limits.max_shares, LIBVIRT_SHARES[1]),
    )
    if within == limits:
        return limits, faults
    return within, (*faults, 'actuator limits wider than libvirt takes')
