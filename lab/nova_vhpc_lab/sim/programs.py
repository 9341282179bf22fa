# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Programs that a simulated VM's vCPUs, or threads of the host, run.

``spread``: each time is drawn evenly from mean +- spread * mean; above 1 it
has an exponential distribution.
"""

import dataclasses
import enum


class Pattern(enum.Enum):
    """How the hosts of one program exchange messages between two rounds."""

    BARRIER = 'barrier'
    """As many steps as the logarithm of the hosts, one message each."""
    ALL_TO_ALL = 'all-to-all'
    """Each host sends one to each other, one after the other."""
    WAVEFRONT = 'wavefront'
    """From each host to the next, as the sweep of a stencil."""


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """Never sleeps. Progress: CPU time."""


@dataclasses.dataclass(frozen=True, slots=True)
class Spin:
    """Computes, then spins at a barrier until all siblings have come.

    Progress of programs with barriers: barriers passed times ``work_us``.

    :ivar work_us: time that each vCPU computes between two barriers.
    :ivar pattern: of the messages, if its VMs are on several hosts.
    """

    work_us: float
    spread: float = 0.1
    pattern: Pattern = Pattern.BARRIER


@dataclasses.dataclass(frozen=True, slots=True)
class SpinThenBlock:
    """Computes, spins at a barrier for a while, then sleeps.

    :ivar spin_us: longest time that a vCPU spins.
    """

    work_us: float
    spin_us: float
    spread: float = 0.1
    pattern: Pattern = Pattern.BARRIER


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """Computes, then sleeps at a barrier until all siblings have come."""

    work_us: float
    spread: float = 0.1
    pattern: Pattern = Pattern.BARRIER


@dataclasses.dataclass(frozen=True, slots=True)
class Sleep:
    """Each vCPU runs, then sleeps, by itself.

    :ivar run_us: CPU time after each wake-up.
    :ivar sleep_us: mean time that it sleeps.
    """

    run_us: float
    sleep_us: float
    spread: float = 0.5


@dataclasses.dataclass(frozen=True, slots=True)
class Serve:
    """Serves requests; response times are counted.

    :ivar interval_us: mean time between two requests, per vCPU; they wait in
        one queue for whichever vCPU of the VM is free.
    :ivar service_us: mean CPU time of a request.
    :ivar interval_spread: of the times between two requests, as ``spread``.
    """

    interval_us: float = 4_000.0
    service_us: float = 800.0
    spread: float = 2.0
    interval_spread: float = 2.0


@dataclasses.dataclass(frozen=True, slots=True)
class Io:
    """Each vCPU computes, then waits for a device; for ever, or in phases.

    :ivar run_us: CPU time between two operations.
    :ivar wait_us: mean time of an operation.
    :ivar events: I/O events of each operation.
    :ivar phase_us: how long such a phase lasts; 0 for ever.
    :ivar compute_us: how long it computes between two phases.
    """

    run_us: float = 150.0
    wait_us: float = 500.0
    events: int = 2
    phase_us: float = 0.0
    compute_us: float = 0.0
    spread: float = 0.5


Barrier = Spin | SpinThenBlock | Block
Program = Run | Barrier | Sleep | Serve | Io
