# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""CPU sets of vCPUs as short text. Pure."""

import itertools
from collections.abc import Sequence

from nova_vhpc.linux import cpus
from nova_vhpc.top import text_width


def union(pins: Sequence[str]) -> str:
    """Return all CPUs that a VM's vCPUs are pinned to, such as ``0-15``.

    :param pins: CPU set of each vCPU.
    :returns: empty without pins.
    """
    try:
        return cpus.format_cpu_set(
            cpu for pin in set(pins) for cpu in cpus.parse_cpu_set(pin)
        )
    except ValueError:
        return ' '.join(dict.fromkeys(pins))


def fit(text: str, width: int) -> str:
    """Return a CPU set in at most ``width`` characters.

    :param text: CPU set, such as ``0,2,4,6``.
    :returns: the set, with a stride (``0-6:2``), or the number of its CPUs.
    """
    if len(text) <= width:
        return text
    try:
        numbers = sorted(cpus.parse_cpu_set(text))
    except ValueError:
        return text_width.shorten(text, width)
    steps = {b - a for a, b in itertools.pairwise(numbers)}
    if len(steps) == 1:
        strided = f'{numbers[0]}-{numbers[-1]}:{steps.pop()}'
        if len(strided) <= width:
            return strided
    return text_width.shorten(f'{len(numbers)} CPUs', width)


def by_vcpu(pins: Sequence[str]) -> str:
    """Return the CPU set of each vCPU, those of equal sets together.

    For instance ``vCPU 0: 3; vCPUs 1-3: 4-7``; only the set if all vCPUs have
    the same one.
    """
    vcpus: dict[str, list[int]] = {}
    for vcpu, pin in enumerate(pins):
        vcpus.setdefault(pin, []).append(vcpu)
    if len(vcpus) < 2:
        return next(iter(vcpus), '-')
    return '; '.join(
        f'vCPU{"s" if len(numbers) > 1 else ""} '
        f'{cpus.format_cpu_set(numbers)}: {pin}'
        for pin, numbers in vcpus.items()
    )
