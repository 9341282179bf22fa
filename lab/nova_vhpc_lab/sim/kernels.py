# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Which CPU scheduler a simulated host has, and its settings."""

import dataclasses
import enum

from nova_vhpc_lab.sim.kernel import state


@dataclasses.dataclass(frozen=True, slots=True)
class Linux:
    """EEVDF, as in Linux 6.12 to 6.18."""


@dataclasses.dataclass(frozen=True, slots=True)
class XenCredit:
    """Xen's credit scheduler, with a time slice for each VM.

    :ivar slice_us: time slice of VMs that have none of their own.
    :ivar ratelimit_us: time for which nothing preempts a vCPU, however short
        its slice is; 0 for none.
    :ivar accounting_follows: whether credits are accounted as often as the
        shortest time slice of any VM ends; else as often as ``slice_us``,
        which is what Xen does. It has no time slices of single VMs.
    """

    slice_us: int = 30_000
    ratelimit_us: int = 1_000
    accounting_follows: bool = True


Kernel = Linux | XenCredit

LINUX = Linux()


class CoScheduling(enum.Enum):
    """Whether sibling vCPUs of a VM are made to run at the same time."""

    NONE = state.APART
    RELAXED = state.RELAXED
    """They begin together; the time slice of each ends by itself."""
    STRICT = state.STRICT
    """They begin and end together."""
