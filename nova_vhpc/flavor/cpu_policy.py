# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Which vCPUs of a flavor get a dedicated host CPU each."""

import re
from collections.abc import Mapping

POLICIES = ('dedicated', 'mixed')
"""Values of ``hw:cpu_policy`` that dedicate host CPUs. The agent never
re-pins members of such a flavor."""

_EXPLICIT = re.compile(r'resources[a-zA-Z0-9_-]{0,64}:([VP]CPU)')
_TRUE = ('1', 't', 'true', 'on', 'y', 'yes')


def dedicated(vcpus: int, specs: Mapping[str, str]) -> int:
    """Return how many vCPUs get a dedicated CPU; the others share CPUs.

    For a ``mixed`` flavor, these are the vCPUs in the mask, which is read as
    Nova reads it. An unreadable mask counts as empty: Nova does not boot
    such a flavor.

    :param vcpus: vCPUs of the flavor.
    :param specs: all extra specs of the flavor.
    """
    policy = specs.get('hw:cpu_policy')
    if policy == 'dedicated' or 'PCPU' in _explicit(specs):
        return vcpus
    if policy != 'mixed':
        return 0
    mask = specs.get('hw:cpu_dedicated_mask')
    if not mask and specs.get('hw:cpu_realtime', '').lower().strip() in _TRUE:
        mask = specs.get('hw:cpu_realtime_mask')
    try:
        return len(_masked(vcpus, mask or ''))
    except ValueError:
        return 0


def dedicated_by(specs: Mapping[str, str]) -> str:
    """Return the extra spec that gives dedicated host CPUs; empty if none.

    :param specs: all extra specs of the flavor.
    """
    for key, value in specs.items():
        match = _EXPLICIT.fullmatch(key)
        if match:
            is_dedicated = match[1] == 'PCPU' and value.strip('0') != ''
        else:
            is_dedicated = key == 'hw:cpu_policy' and value in POLICIES
        if is_dedicated:
            return f'{key}={value}'
    return ''


def resources(vcpus: int, specs: Mapping[str, str]) -> dict[str, int]:
    """Return what Nova asks Placement for on account of a flavor's vCPUs.

    Empty if the flavor's own request groups name CPUs.

    :returns: amounts by resource class.
    """
    if _explicit(specs):
        return {}
    own = dedicated(vcpus, specs)
    shared = vcpus - own
    return {'VCPU': shared, 'PCPU': own + emulator_cpus(own, specs)}


def emulator_cpus(own: int, specs: Mapping[str, str]) -> int:
    """Return how many dedicated CPUs the flavor's emulator threads get.

    :param own: number of vCPUs with a dedicated CPU.
    """
    isolated = specs.get('hw:emulator_threads_policy') == 'isolate'
    return int(own > 0 and isolated)


def falls_back(specs: Mapping[str, str]) -> bool:
    """Return whether Nova also considers hosts without dedicated CPUs.

    True by the default of ``[workarounds] disable_fallback_pcpu_query``.
    """
    return specs.get('hw:cpu_policy') == 'dedicated'


def _explicit(specs: Mapping[str, str]) -> set[str]:
    """Return which of VCPU and PCPU the request groups name."""
    found = map(_EXPLICIT.fullmatch, specs)
    return {match[1] for match in found if match}


def _masked(vcpus: int, mask: str) -> set[int]:
    """Return the vCPUs of a mask: ``0-3,^1``, or ``^0`` for all but 0.

    :raises ValueError: the text is not a mask.
    """
    named: set[int] = set()
    taken_out: set[int] = set()
    if mask.strip().startswith('^'):
        named.update(range(vcpus))
    for part in filter(None, (part.strip() for part in mask.split(','))):
        first, dash, last = part.removeprefix('^').partition('-')
        start, end = int(first), int(last if dash else first)
        found = range(max(0, start), min(end, vcpus) + 1)
        (taken_out if part.startswith('^') else named).update(found)
    return (named - taken_out) & set(range(vcpus))
