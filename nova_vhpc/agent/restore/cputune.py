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

"""Puts a domain's cputune back to what it was.

*Exact* means: afterwards ``schedulerParameters``, ``vcpuPinInfo`` and
``emulatorPinInfo`` give what they gave before the first write. libvirt
cannot take a ``<vcpupin>`` or ``<period>`` element out of the live XML
again, so the elements stay, with the original values in them; the
persistent XML, from which a restart is made, is never written at all.
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
    released: frozenset[str] = frozenset(),
    weighed: bool = False,
    cpuset: Callable[[], frozenset[int] | None] = lambda: None,
    narrowed: dict[str, frozenset[int]] | None = None,
) -> tuple[str, ...]:
    """Put back what we may have written; nothing else.

    What can be put back is, also where one call is refused; but not where
    one has timed out.

    :param released: names in :data:`.cputune.MANAGED`, or of one vCPU's pins
        (:func:`.cputune.pin_name`), that are no longer ours.
    :param weighed: we may have written ``cpu_shares``, and since then into
        the control group alone. libvirt reads them there, but migrates what
        it was told, and so does systemd write it anew.
    :param cpuset: gives the CPUs that the domain's control group has; None
        where that is not known.
    :param narrowed: takes the pins that could not be put back whole, by name.
    :returns: what differs afterwards all the same, empty when exact.
    :raises libvirt.libvirtError: when a call was refused; the first one's.
    """
    now = cputune.read(domain)
    if now.vcpupins != original.vcpupins:
        # CPUs of the host came or went; nothing was written there.
        released |= {
            cputune.pin_name(vcpu) for vcpu in cputune.unpinned(domain)
        }
    refused: list[libvirt.libvirtError] = []
    if narrowed is None:
        narrowed = {}
    for put_back in _steps(
        domain, original, now, released, weighed, cpuset, narrowed
    ):
        try:
            put_back()
        except libvirt.libvirtError as error:
            if error.get_error_code() == libvirt.VIR_ERR_OPERATION_TIMEOUT:
                # Each further call would wait as long, 30 s.
                raise
            refused.append(error)
    if refused:
        raise refused[0]
    return cputune.differences(
        original, cputune.read(domain), released | narrowed.keys()
    )


def _steps(
    domain: Any,
    original: cputune.Cputune,
    now: cputune.Cputune,
    released: frozenset[str],
    weighed: bool,
    cpuset: Callable[[], frozenset[int] | None],
    narrowed: dict[str, frozenset[int]],
) -> Iterator[Callable[[], None]]:
    """The calls that make a domain what it was, each on its own.

    :param narrowed: takes the pins that could not be put back whole, by name.
    """
    want = original.parameters
    bandwidth = {cputune.PERIOD, cputune.QUOTA} - released
    if any(
        name in want
        and not cputune.same(name, want[name], now.parameters.get(name))
        for name in bandwidth
    ):
        yield functools.partial(
            _restore_bandwidth, domain, want, now.parameters, bandwidth
        )
    if cputune.SHARES not in released and cputune.SHARES in want:
        if want[cputune.SHARES] != now.parameters.get(cputune.SHARES):
            yield functools.partial(
                cputune.write_shares, domain, want[cputune.SHARES]
            )
        elif weighed:
            yield functools.partial(_tell_shares, domain, want[cputune.SHARES])
    for vcpu, (pin, have) in enumerate(
        zip(original.vcpupins, now.vcpupins, strict=False)
    ):
        if pin != have and released.isdisjoint(
            (cputune.PINS, cputune.pin_name(vcpu))
        ):
            yield functools.partial(
                _restore_pin,
                domain,
                vcpu,
                pin,
                original.host_cpus,
                cpuset,
                narrowed,
            )


def _restore_pin(
    domain: Any,
    vcpu: int,
    cpus: frozenset[int],
    host_cpus: int,
    cpuset: Callable[[], frozenset[int] | None],
    narrowed: dict[str, frozenset[int]],
) -> None:
    """Pin a vCPU as it was; without CPUs that are off, if need be.

    cgroup v1 refuses these. It has taken them away from all who had them, for
    good, also where they are on again: without us the VM would not have them
    either.
    """
    try:
        cputune.write_pin(domain, vcpu, cpus, host_cpus)
        return
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_OPERATION_TIMEOUT:
            raise
        left = cpus & cputune.online(domain)
        group = cpuset()
        if group is not None:
            left &= group
        if left in (frozenset(), cpus):
            raise
    cputune.write_pin(domain, vcpu, left, host_cpus)
    narrowed[cputune.pin_name(vcpu)] = left
    LOG.warning(
        'VM %s: vCPU %d: pinned to %s and not to %s: the rest is off, or its '
        'control group (cpuset.cpus) lacks it',
        domain.name(),
        vcpu,
        sorted(left),
        sorted(cpus),
    )


def _tell_shares(domain: Any, shares: int) -> None:
    """Write what is in force, if libvirt was told something else."""
    root = ElementTree.fromstring(domain.XMLDesc(0))
    if root.findtext('./cputune/shares', str(shares)) != str(shares):
        cputune.write_shares(domain, shares)


def _restore_bandwidth(
    domain: Any,
    want: Mapping[str, int],
    now: Mapping[str, int],
    names: Collection[str],
) -> None:
    """Period and quota: the named ones as they were, the rest as it is."""
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
        # 0 is silently ignored by libvirt; too large is refused.
        model.UNLIMITED if cputune.is_unlimited(quota) else quota,
        now,
    )
