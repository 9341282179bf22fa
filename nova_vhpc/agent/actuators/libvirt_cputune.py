# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Write period, quota, shares and pins of a live domain by libvirt."""

import contextlib
import dataclasses
import pathlib
from typing import Any

import libvirt

from nova_vhpc.agent import errors, plugins
from nova_vhpc.agent.actuators import affinity
from nova_vhpc.agent.guests import guest
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.control import model
from nova_vhpc.linux import cgroup, tick

NAMESPACE = 'nova_vhpc.actuators'

TICKS_PER_SLICE = 1
"""The kernel preempts a thread whose slice is over at a scheduler tick."""

GUESSED_HZ = 250
"""Assumed tick rate if it cannot be read: most distributions set it."""


class LibvirtCputuneActuator:
    """Writes the cputune by libvirt; works on every host.

    A plugin in its place has the same methods and writes no other value: the
    journal holds, and a restore writes, only these.

    :param conf: configuration with ``[vhpc_agent]``.
    """

    def __init__(self, conf: Any) -> None:
        self._cgroup = pathlib.Path(conf.vhpc_agent.cgroup_root)
        self._limits: model.ActuatorLimits | None = None

    def limits(self) -> model.ActuatorLimits:
        """Return the limits of libvirt, cgroup version and kernel tick."""
        if self._limits is None:
            v2 = cgroup.cpu_is_v2(self._cgroup)
            self._limits = model.ActuatorLimits(
                effective_min_slice_us=max(
                    1000,
                    TICKS_PER_SLICE
                    * 1_000_000
                    // (tick.tick_hz() or GUESSED_HZ),
                ),
                min_shares=1 if v2 else 2,
                max_shares=10_000 if v2 else 262_144,
                can_place=affinity.is_allowed(),
            )
        if not self._limits.can_idle:
            # Looked at again: on a host without guests there may be no group.
            can_idle = cgroup.can_idle(self._cgroup)
            if can_idle:
                self._limits = dataclasses.replace(self._limits, can_idle=True)
        return self._limits

    def write(self, guest: guest.Guest, tune: model.CpuTune) -> None:
        """Write the fields of ``tune`` that are not None.

        One call for bandwidth, one for shares, one per moved vCPU. Each value
        is noted in the guest as soon as it is in force.

        :raises libvirt.libvirtError, OSError: a value was refused.
        """
        domain = guest.domain
        if tune.period_us is not None and tune.quota_us is not None:
            self._write_bandwidth(guest, tune.period_us, tune.quota_us)
            guest.note_written(
                {
                    cputune.PERIOD: tune.period_us,
                    cputune.QUOTA: tune.quota_us,
                }
            )
        if tune.shares is not None:
            # A gang window may have left the group idle; see cgroup_weight.
            if guest.weight_file is not None:
                guest.weight_file.end_idle()
            cputune.write_shares(domain, tune.shares)
            guest.note_written({cputune.SHARES: tune.shares})
        if tune.vcpu_pins is not None:
            moved = False
            for vcpu, cpus in enumerate(tune.vcpu_pins):
                now = guest.expected.vcpupins
                if (
                    vcpu < len(now)
                    and cpus != now[vcpu]
                    and _pin(guest, vcpu, cpus)
                ):
                    guest.note_written(pins={vcpu: cpus})
                    moved = True
            guest.moves += moved

    @staticmethod
    def _write_bandwidth(
        guest: guest.Guest, period_us: int, quota_us: int
    ) -> None:
        """Write both or none: one of them alone changes the CPU share."""
        before = guest.expected.parameters
        try:
            cputune.write_bandwidth(guest.domain, period_us, quota_us, before)
        except libvirt.libvirtError:
            with contextlib.suppress(libvirt.libvirtError, KeyError):
                cputune.write_bandwidth(
                    guest.domain,
                    before[cputune.PERIOD],
                    before[cputune.QUOTA],
                    {cputune.PERIOD: period_us, cputune.QUOTA: quota_us},
                )
            raise


def load(conf: Any) -> Any:
    """Return the actuator that ``[vhpc_agent]actuators`` names.

    :raises ConfigError: not just one is named, it is unknown, or it failed.
    """
    names = conf.vhpc_agent.actuators
    value = f"[vhpc_agent]actuators = '{','.join(names)}'"
    if len(names) != 1:
        raise errors.ConfigError(
            f'{value}: name one; allowed: {plugins.allowed(NAMESPACE)}'
        )
    actuator_class = plugins.load(
        NAMESPACE, names[0], value, 'no such actuator'
    )
    try:
        actuator = actuator_class(conf)
        actuator.limits()
    except Exception as error:
        raise errors.ConfigError(f'{value}: failed: {error!r}') from error
    return actuator


def _pin(guest: guest.Guest, vcpu: int, cpus: frozenset[int]) -> bool:
    """Pin a vCPU unless one of the CPUs has just gone offline.

    The kernel (cgroup v1) refuses an offline CPU; the next ticks will not
    use it.

    :returns: whether the vCPU was pinned.
    :raises libvirt.libvirtError: the pin was refused for another reason.
    """
    domain = guest.domain
    # The event of this write may arrive before the call returns.
    guest.event_history.note({cputune.pin_name(vcpu): cpus})
    try:
        cputune.write_pin(domain, vcpu, cpus, guest.expected.host_cpus)
        return True
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_OPERATION_TIMEOUT:
            raise
        if cpus <= cputune.online(domain):
            raise
    return False
