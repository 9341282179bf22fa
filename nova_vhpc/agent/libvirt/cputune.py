# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Read and write a domain's cputune through libvirt."""

import dataclasses
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from typing import Any

import libvirt

from nova_vhpc.control import model
from nova_vhpc.linux import cpus

LIVE = libvirt.VIR_DOMAIN_AFFECT_LIVE

PERIOD = 'vcpu_period'
QUOTA = 'vcpu_quota'
SHARES = 'cpu_shares'
PINS = 'vcpupin'
MANAGED = (PERIOD, QUOTA, SHARES, PINS)
"""The values that the agent writes. All others are recorded only."""

LARGEST_QUOTA_US = 17_592_186_044_415
"""Largest quota that libvirt accepts; older cgroup code of libvirt returns it
for "unlimited"."""

LARGEST_VALUE = 2**64 - 1
"""Largest scheduler parameter that libvirt's interface can carry."""


@dataclasses.dataclass(frozen=True, slots=True)
class Cputune:
    """All values of a domain's cputune.

    :ivar parameters: all scheduler parameters, by libvirt's names.
    :ivar vcpupins: host CPUs that each vCPU may use.
    :ivar emulatorpin: host CPUs that the emulator's threads may use.
    :ivar host_cpus: length of libvirt's CPU maps.
    """

    parameters: Mapping[str, int]
    vcpupins: tuple[frozenset[int], ...]
    emulatorpin: frozenset[int]
    host_cpus: int

    def tune(self, vcpus: int) -> model.CpuTune:
        """Return the values that the controller uses.

        :param vcpus: number of vCPUs that are online; libvirt lists the pins
            of all possible ones.
        """
        quota = self.parameters.get(QUOTA)
        if quota is not None and is_unlimited(quota):
            quota = model.UNLIMITED
        return model.CpuTune(
            self.parameters.get(PERIOD),
            quota,
            self.parameters.get(SHARES),
            self.vcpupins[:vcpus],
        )

    @property
    def cpus(self) -> frozenset[int]:
        """CPUs that any vCPU may use."""
        return frozenset().union(*self.vcpupins)

    def is_floating(
        self, cpuset: frozenset[int] | None, online: frozenset[int]
    ) -> bool:
        """Return whether no vCPU is pinned beyond what Nova does for all.

        :param cpuset: ``cpuset`` of the domain's ``<vcpu>``; None without one.
        :param online: host CPUs that are online: for a vCPU without pins
            libvirt lists only these, not those that are off (by ``nosmt``,
            for example).
        """
        if cpuset:
            return all(pin == cpuset for pin in self.vcpupins)
        return all(pin >= online for pin in self.vcpupins)

    def to_dict(self) -> dict[str, Any]:
        """Return the values for JSON."""
        return {
            'parameters': dict(self.parameters),
            'vcpupins': [sorted(pin) for pin in self.vcpupins],
            'emulatorpin': sorted(self.emulatorpin),
            'host_cpus': self.host_cpus,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> 'Cputune':
        """Return the cputune that :meth:`to_dict` made JSON of.

        :raises KeyError, TypeError, ValueError, AttributeError,
            OverflowError: the JSON is something else.
        """
        tune = cls(
            {str(k): int(v) for k, v in data['parameters'].items()},
            tuple(
                frozenset(int(cpu) for cpu in pin) for pin in data['vcpupins']
            ),
            frozenset(int(cpu) for cpu in data['emulatorpin']),
            int(data['host_cpus']),
        )
        if (PERIOD in tune.parameters) != (QUOTA in tune.parameters):
            raise ValueError('period without quota, or quota without period')
        if not all(tune.vcpupins):
            raise ValueError('a vCPU without any CPU')
        if max(tune.host_cpus, len(tune.vcpupins)) > cpus.MOST_CPUS:
            raise ValueError('no host has so many CPUs')
        pins = (*tune.vcpupins, tune.emulatorpin or frozenset({0}))
        if any(
            min(pin) < 0 or max(pin) >= max(1, tune.host_cpus) for pin in pins
        ):
            raise ValueError('a CPU beyond those of the host')
        if any(
            abs(value) > LARGEST_VALUE for value in tune.parameters.values()
        ):
            raise ValueError('a number that libvirt cannot have returned')
        return tune


def is_unlimited(quota_us: int) -> bool:
    """Return whether a quota that libvirt returned means "unlimited"."""
    return quota_us <= 0 or quota_us >= LARGEST_QUOTA_US


def plain(name: str, value: int) -> int:
    """Return a scheduler parameter with one value only for "unlimited"."""
    if name == QUOTA and is_unlimited(value):
        return model.UNLIMITED
    return value


def same(name: str, one: int | None, other: int | None) -> bool:
    """Return whether two values of a scheduler parameter mean the same.

    "Unlimited" reads as -1 in cgroup v1, as 18446744073709551 in v2.
    """
    if name == QUOTA and one is not None and other is not None:
        return one == other or (is_unlimited(one) and is_unlimited(other))
    return one == other


def read(domain: Any, before: Cputune | None = None) -> Cputune:
    """Read the cputune of a running domain.

    :param before: an earlier cputune of the domain, from which values that the
        agent never writes are taken; None to read all.
    :raises libvirt.libvirtError: libvirt cannot read it.
    """
    parameters = domain.schedulerParametersFlags(LIVE)
    pins = domain.vcpuPinInfo(LIVE)
    if before is None:
        emulator = domain.emulatorPinInfo(LIVE)
        emulatorpin, host_cpus = pin_cpus(emulator), len(emulator)
    else:
        emulatorpin = before.emulatorpin
        # CPUs may have been added to the host since.
        host_cpus = max([before.host_cpus, *map(len, pins)])
    return Cputune(
        {name: int(value) for name, value in parameters.items()},
        tuple(pin_cpus(pin) for pin in pins),
        emulatorpin,
        host_cpus,
    )


def write_bandwidth(
    domain: Any, period_us: int, quota_us: int, now: Mapping[str, int]
) -> None:
    """Set vCPU period and quota in an order that cgroup v1 accepts.

    cgroup v1 refuses a vCPU ratio (quota by period) above the domain's global
    one, with error code 38, and the keys of the call that came before stay
    applied. Therefore the quota is set first if the period gets shorter, and
    the period first if it gets longer: the ratio in between is then never
    above both the old and the new one.

    :param now: scheduler parameters that are in force.
    :raises libvirt.libvirtError: libvirt refused it.
    """
    limited = not is_unlimited(now.get(QUOTA, model.UNLIMITED))
    quota_first = quota_us < 0 or (limited and period_us < now.get(PERIOD, 0))
    steps = (
        {QUOTA: quota_us, PERIOD: period_us}
        if quota_first
        else {PERIOD: period_us, QUOTA: quota_us}
    )
    domain.setSchedulerParametersFlags(steps, LIVE)


def write_shares(domain: Any, shares: int) -> None:
    """Set the weight of a domain.

    :raises libvirt.libvirtError: libvirt refused it.
    """
    domain.setSchedulerParametersFlags({SHARES: shares}, LIVE)


def write_pin(
    domain: Any, vcpu: int, cpus: frozenset[int], host_cpus: int
) -> None:
    """Pin one vCPU of a domain.

    :param host_cpus: length of libvirt's CPU maps.
    :raises libvirt.libvirtError: libvirt refused it.
    """
    domain.pinVcpuFlags(
        vcpu, tuple(cpu in cpus for cpu in range(host_cpus)), LIVE
    )


def online(domain: Any) -> frozenset[int]:
    """Return the online CPUs of a domain's host.

    :raises libvirt.libvirtError: libvirt cannot read them.
    """
    return pin_cpus(domain.connect().getCPUMap()[1])


def names(tune: Cputune) -> tuple[str, ...]:
    """Return the names of all values that the agent may write to a domain."""
    return (
        PERIOD,
        QUOTA,
        SHARES,
        *(pin_name(vcpu) for vcpu in range(len(tune.vcpupins))),
    )


def pin_name(vcpu: int) -> str:
    """Return the name of one vCPU's pins among the unmanaged fields."""
    return f'{PINS} {vcpu}'


def unpinned(domain: Any) -> frozenset[int]:
    """Return the vCPUs that were never pinned.

    For these libvirt lists the host's online CPUs, which may change. A vCPU
    that was pinned once keeps its ``<vcpupin>`` in the live XML.

    :raises libvirt.libvirtError: libvirt cannot return the XML.
    """
    root = ElementTree.fromstring(domain.XMLDesc(0))
    vcpu = root.find('vcpu')
    if vcpu is None or vcpu.get('cpuset') or vcpu.get('placement') == 'auto':
        return frozenset()
    pinned = {
        element.get('vcpu') for element in root.findall('./cputune/vcpupin')
    }
    return frozenset(
        number
        for number in range(int(vcpu.text or 1))
        if str(number) not in pinned
    )


def differences(
    want: Cputune,
    have: Cputune,
    released: frozenset[str] = frozenset(),
) -> tuple[str, ...]:
    """Describe the managed values that differ, one sentence each.

    :param want: values that should be in force.
    :param have: values that are in force.
    :param released: names of unmanaged fields, which are not compared.
    """
    texts = [
        f'{name} is {have.parameters.get(name)}, not {want.parameters[name]}'
        for name in (PERIOD, QUOTA, SHARES)
        if name not in released
        and name in want.parameters
        and not same(name, want.parameters[name], have.parameters.get(name))
    ]
    texts += [
        f'vcpupin {vcpu} is {sorted(now)}, not {sorted(pin)}'
        for vcpu, (pin, now) in enumerate(
            zip(want.vcpupins, have.vcpupins, strict=False)
        )
        if pin != now and released.isdisjoint((PINS, pin_name(vcpu)))
    ]
    return tuple(texts)


def pin_cpus(pin: tuple[bool, ...]) -> frozenset[int]:
    """Return the numbers of the CPUs in one of libvirt's CPU maps."""
    return frozenset(cpu for cpu, usable in enumerate(pin) if usable)
