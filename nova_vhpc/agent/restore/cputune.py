# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Restore a domain's original cputune exactly.

*Exact* means: afterwards ``schedulerParameters``, ``vcpuPinInfo`` and
``emulatorPinInfo`` return what they returned before the agent's first write.
libvirt cannot take a ``<vcpupin>`` or ``<period>`` element out of the live XML
again, so these elements stay, with the original values in them. The persistent
XML, from which a restart is made, is never written.
"""

import functools
import logging
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import libvirt

from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.control import model

LOG = logging.getLogger(__name__)


def restore(
    domain: Any,
    original: cputune.Cputune,
    unmanaged_fields: frozenset[str] = frozenset(),
    shares_written: bool = False,
    cpuset: Callable[[], frozenset[int] | None] = lambda: None,
) -> tuple[str, ...]:
    """Write the original values that are not in force.

    After a call that libvirt refused, the other values are still restored;
    after one that timed out, nothing more is tried.

    :param unmanaged_fields: names of values that must not be written, as in
        :data:`.cputune.MANAGED` or from :func:`.cputune.pin_name`.
    :param shares_written: whether the agent may have written ``cpu_shares``.
        The original value may then be in force through the control group's
        file, while libvirt knows another, which it migrates and which systemd
        writes again.
    :param cpuset: returns the CPUs of the domain's control group; None if
        they are unknown.
    :returns: how the domain still differs; empty if the restore is exact.
    :raises libvirt.libvirtError: libvirt refused a call; the first error.
    """
    now = cputune.read(domain)
    if now.vcpupins != original.vcpupins:
        # Host CPUs were switched on or off; these pins follow them.
        unmanaged_fields |= {
            cputune.pin_name(vcpu) for vcpu in cputune.unpinned(domain)
        }
    refused: list[libvirt.libvirtError] = []
    narrowed: set[str] = set()
    restore_pin = functools.partial(
        _restore_pin, domain, original.host_cpus, cpuset, narrowed
    )
    for step in _steps(
        domain, original, now, unmanaged_fields, shares_written, restore_pin
    ):
        try:
            step()
        except libvirt.libvirtError as error:
            if error.get_error_code() == libvirt.VIR_ERR_OPERATION_TIMEOUT:
                # Each further call would wait as long, 30 s.
                raise
            refused.append(error)
    if refused:
        raise refused[0]
    return cputune.differences(
        original, cputune.read(domain), unmanaged_fields | narrowed
    )


def _steps(
    domain: Any,
    original: cputune.Cputune,
    now: cputune.Cputune,
    unmanaged_fields: frozenset[str],
    shares_written: bool,
    restore_pin: Callable[[int, frozenset[int]], None],
) -> Iterator[Callable[[], None]]:
    """Yield the calls that restore a domain; each can fail on its own.

    :param restore_pin: pins a vCPU to host CPUs.
    """
    want = original.parameters
    bandwidth = {cputune.PERIOD, cputune.QUOTA} - unmanaged_fields
    if any(
        name in want
        and not cputune.same(name, want[name], now.parameters.get(name))
        for name in bandwidth
    ):
        yield functools.partial(
            _restore_bandwidth, domain, want, now.parameters, bandwidth
        )
    if cputune.SHARES not in unmanaged_fields and cputune.SHARES in want:
        shares = want[cputune.SHARES]
        if shares != now.parameters.get(cputune.SHARES):
            yield functools.partial(cputune.write_shares, domain, shares)
        elif shares_written:
            yield functools.partial(_restore_shares_in_xml, domain, shares)
    for vcpu, (pin, have) in enumerate(
        zip(original.vcpupins, now.vcpupins, strict=False)
    ):
        if pin != have and unmanaged_fields.isdisjoint(
            (cputune.PINS, cputune.pin_name(vcpu))
        ):
            yield functools.partial(restore_pin, vcpu, pin)


def _restore_pin(
    domain: Any,
    host_cpus: int,
    cpuset: Callable[[], frozenset[int] | None],
    narrowed: set[str],
    vcpu: int,
    cpus: frozenset[int],
) -> None:
    """Restore the pins of one vCPU, without CPUs that are off if need be.

    cgroup v1 refuses pins to CPUs that are off. When a CPU is switched off,
    the kernel takes it from all groups, for good: also without the agent, the
    guest would not have it, even once it is on again.

    :param narrowed: receives the name of pins that are restored in part.
    """
    try:
        cputune.write_pin(domain, vcpu, cpus, host_cpus)
        return
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_OPERATION_TIMEOUT:
            raise
        possible = cpus & cputune.online(domain)
        group = cpuset()
        if group is not None:
            possible &= group
        if possible in (frozenset(), cpus):
            raise
    cputune.write_pin(domain, vcpu, possible, host_cpus)
    narrowed.add(cputune.pin_name(vcpu))
    LOG.warning(
        'VM %s: vCPU %d: pinned to %s and not to %s: the rest is off, or its '
        'control group (cpuset.cpus) lacks it',
        domain.name(),
        vcpu,
        sorted(possible),
        sorted(cpus),
    )


def _restore_shares_in_xml(domain: Any, shares: int) -> None:
    """Write the shares in force if libvirt's live XML has others."""
    root = ElementTree.fromstring(domain.XMLDesc(0))
    if root.findtext('./cputune/shares', str(shares)) != str(shares):
        cputune.write_shares(domain, shares)


def _restore_bandwidth(
    domain: Any,
    want: Mapping[str, int],
    now: Mapping[str, int],
    names: Collection[str],
) -> None:
    """Restore the named ones of period and quota; write the other unchanged.

    :param want: original scheduler parameters.
    :param now: scheduler parameters in force.
    """
    mixed = {
        name: want[name] if name in names and name in want else now[name]
        for name in (cputune.PERIOD, cputune.QUOTA)
        if name in want or name in now
    }
    if len(mixed) < 2:
        domain.setSchedulerParametersFlags(mixed, cputune.LIVE)
        return
    quota = mixed[cputune.QUOTA]
    cputune.write_bandwidth(
        domain,
        mixed[cputune.PERIOD],
        # libvirt silently ignores 0, and refuses a quota that is too large.
        model.UNLIMITED if cputune.is_unlimited(quota) else quota,
        now,
    )
