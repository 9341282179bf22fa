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

"""A domain's whole cputune as libvirt tells it, and calls that write it."""

import dataclasses
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from typing import Any

import libvirt

from nova_vhpc.control import model

LIVE = libvirt.VIR_DOMAIN_AFFECT_LIVE

PERIOD = 'vcpu_period'
QUOTA = 'vcpu_quota'
SHARES = 'cpu_shares'
PINS = 'vcpupin'
MANAGED = (PERIOD, QUOTA, SHARES, PINS)
"""What we ever write. All else is recorded, and never touched."""

LARGEST_QUOTA_US = 17_592_186_044_415
"""Above this libvirt refuses; old cgroup code reads "unlimited" so."""


@dataclasses.dataclass(frozen=True, slots=True)
class Cputune:
    """Every value of a domain's cputune.

    :ivar parameters: all scheduler parameters by libvirt's names.
    :ivar vcpupins: for each vCPU the host CPUs it may use.
    :ivar emulatorpin: the same for the emulator's threads.
    :ivar host_cpus: length of libvirt's CPU maps.
    """

    parameters: Mapping[str, int]
    vcpupins: tuple[frozenset[int], ...]
    emulatorpin: frozenset[int]
    host_cpus: int

    def tune(self, vcpus: int) -> model.CpuTune:
        """The part that the controller deals with.

        :param vcpus: that are online; libvirt tells of all there could be.
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

    def floats(
        self, cpuset: frozenset[int] | None, online: frozenset[int]
    ) -> bool:
        """Whether it has the pins that Nova gives to all guests, or none.

        :param cpuset: of the domain's ``<vcpu>``; None without one.
        :param online: CPUs of the host that are: without pins libvirt tells
            only those, also where others are there and off, as by ``nosmt``.
        """
        if cpuset:
            return all(pin == cpuset for pin in self.vcpupins)
        return all(pin >= online for pin in self.vcpupins)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            'parameters': dict(self.parameters),
            'vcpupins': [sorted(pin) for pin in self.vcpupins],
            'emulatorpin': sorted(self.emulatorpin),
            'host_cpus': self.host_cpus,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> 'Cputune':
        """From JSON.

        :raises KeyError, TypeError, ValueError, AttributeError,
            OverflowError: if it is not what :meth:`to_dict` makes.
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
            raise ValueError('of period and quota only one')
        if not all(tune.vcpupins):
            raise ValueError('a vCPU without any CPU')
        if any(max(pin) >= tune.host_cpus for pin in tune.vcpupins):
            raise ValueError('a CPU beyond those of the host')
        return tune


def is_unlimited(quota_us: int) -> bool:
    """Whether a quota that was read back does not limit."""
    return quota_us <= 0 or quota_us >= LARGEST_QUOTA_US


def plain(name: str, value: int) -> int:
    """A scheduler parameter as it is written: no limit reads in many ways."""
    if name == QUOTA and is_unlimited(value):
        return model.UNLIMITED
    return value


def same(name: str, one: int | None, other: int | None) -> bool:
    """Whether two values of a scheduler parameter mean the same.

    "Unlimited" reads as -1 in cgroup v1, as 18446744073709551 in v2.
    """
    if name == QUOTA and one is not None and other is not None:
        return one == other or (is_unlimited(one) and is_unlimited(other))
    return one == other


def read(domain: Any, before: Cputune | None = None) -> Cputune:
    """Ask libvirt for all of a running domain's cputune.

    :param before: as it was; what the agent never writes is taken from it.
    :raises libvirt.libvirtError: when it cannot tell.
    """
    parameters = domain.schedulerParametersFlags(LIVE)
    pins = domain.vcpuPinInfo(LIVE)
    if before is None:
        emulator = domain.emulatorPinInfo(LIVE)
        emulatorpin, host_cpus = pin_cpus(emulator), len(emulator)
    else:
        emulatorpin = before.emulatorpin
        # More were plugged into the host since, maybe.
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
    """Set vCPU period and quota so that no step between is refused.

    cgroup v1 refuses a vCPU ratio above the domain's own global one (code
    38, the earlier keys of the call stay applied): going to a shorter
    period the quota comes first, going to a longer one the period, so the
    ratio in between is never above both ends.

    :raises libvirt.libvirtError: when refused all the same.
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
    """Set the weight of the domain. Raises libvirt.libvirtError."""
    domain.setSchedulerParametersFlags({SHARES: shares}, LIVE)


def write_pin(
    domain: Any, vcpu: int, cpus: frozenset[int], host_cpus: int
) -> None:
    """Pin one vCPU. Raises libvirt.libvirtError."""
    domain.pinVcpuFlags(
        vcpu, tuple(cpu in cpus for cpu in range(host_cpus)), LIVE
    )


def online(domain: Any) -> frozenset[int]:
    """CPUs of its host that are on. Raises libvirt.libvirtError."""
    return pin_cpus(domain.connect().getCPUMap()[1])


def names(tune: Cputune) -> tuple[str, ...]:
    """Of all that we may write to a domain, vCPU by vCPU."""
    return (
        PERIOD,
        QUOTA,
        SHARES,
        *(pin_name(vcpu) for vcpu in range(len(tune.vcpupins))),
    )


def pin_name(vcpu: int) -> str:
    """How one vCPU's pins are called among the released values."""
    return f'{PINS} {vcpu}'


def unpinned(domain: Any) -> frozenset[int]:
    """vCPUs that nothing was ever said of: whose pins follow the host.

    For these libvirt tells the CPUs that are online, which change with the
    host. Once pinned, a vCPU keeps its element in the live XML.

    :raises libvirt.libvirtError: when it cannot tell.
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
    """Name the managed values that are not as wanted, for people."""
    found = [
        f'{name} is {have.parameters.get(name)}, not {want.parameters[name]}'
        for name in (PERIOD, QUOTA, SHARES)
        if name not in released
        and name in want.parameters
        and not same(name, want.parameters[name], have.parameters.get(name))
    ]
    found += [
        f'vcpupin {vcpu} is {sorted(now)}, not {sorted(pin)}'
        for vcpu, (pin, now) in enumerate(
            zip(want.vcpupins, have.vcpupins, strict=False)
        )
        if pin != now and released.isdisjoint((PINS, pin_name(vcpu)))
    ]
    return tuple(found)


def pin_cpus(pin: tuple[bool, ...]) -> frozenset[int]:
    """CPU numbers of one of libvirt's CPU maps."""
    return frozenset(cpu for cpu, usable in enumerate(pin) if usable)
