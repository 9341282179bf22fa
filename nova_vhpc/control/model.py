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

"""The words of the control core: what it is shown and what it answers.

Everything here is an immutable value. The agent fills a :class:`HostView`
once per tick and hands it to ``controller.decide``; the answer is a
:class:`Plan`. Times are microseconds, CPU numbers are the kernel's.
"""

import dataclasses
import enum
from collections.abc import Mapping
from typing import NamedTuple

UNLIMITED = -1
"""A quota that does not limit, as libvirt reads it back."""

DEFAULT_SLICE_US = 30_000
"""ATC paper, section III: DEFAULT, Xen's own time slice (30 ms)."""

MIN_THRESHOLD_US = 300
"""ATC paper, section III.B: minThreshold (0.3 ms)."""

DEFAULT_SHARES_V1 = 1024
"""``cpu_shares`` of a domain that asks for none, with cgroup v1."""

DEFAULT_SHARES_V2 = 100
"""The same with cgroup v2."""


class Workload(enum.StrEnum):
    """Which time slice policy applies to a VM (``vhpc:workload``)."""

    PARALLEL = 'parallel'
    LATENCY = 'latency'
    GENERAL = 'general'


class Paradigm(enum.StrEnum):
    """How a parallel program communicates (``vhpc:paradigm``)."""

    MPI = 'mpi'
    OPENMP = 'openmp'
    HYBRID = 'hybrid'


class IoPoolUse(enum.StrEnum):
    """Whether a VM may be moved to the I/O pool (``vhpc:io_pool``)."""

    AUTO = 'auto'
    ALWAYS = 'always'
    NEVER = 'never'


class Phase(enum.StrEnum):
    """I/O-perception paper, section III.B: where a VM belongs now."""

    COMPUTING = 'computing'
    IO = 'io'


@dataclasses.dataclass(frozen=True, slots=True)
class CpuTune:
    """libvirt's cputune of one domain; ``None`` means "not ours to set".

    :ivar period_us: enforcement period of each vCPU.
    :ivar quota_us: CPU time of each vCPU per period, or :data:`UNLIMITED`.
    :ivar shares: ``cpu_shares``, the weight of the whole domain.
    :ivar vcpu_pins: one set of host CPUs per vCPU, in vCPU order.
    """

    period_us: int | None = None
    quota_us: int | None = None
    shares: int | None = None
    vcpu_pins: tuple[frozenset[int], ...] | None = None

    @property
    def share(self) -> float | None:
        """Fraction of a CPU that each vCPU may use; None if unlimited."""
        if (
            self.quota_us is None
            or self.quota_us <= 0
            or not self.period_us
            or self.period_us <= 0
        ):
            return None
        return self.quota_us / self.period_us


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """What was measured of one VM in one control period.

    A field is None where the host could not tell. Values may be garbage
    (NaN, negative after a counter reset): the controller checks them.

    :ivar sync_latency_us: mean time that a vCPU was held up (DESIGN's
        *synchronisation latency*), in microseconds per control period.
    :ivar io_events: I/O events, scaled to 100 ms.
    :ivar vcpu_run_us: CPU time used per vCPU in the period.
    :ivar vcpu_wait_us: time runnable but not running, per vCPU.
    :ivar vcpu_runs: how often each vCPU was put on a CPU (schedstat's
        third field); a spinner has few, long runs.
    :ivar elapsed_us: length of the period that was really measured.
    """

    sync_latency_us: float | None = None
    io_events: float | None = None
    vcpu_run_us: tuple[float, ...] | None = None
    vcpu_wait_us: tuple[float, ...] | None = None
    vcpu_runs: tuple[int, ...] | None = None
    elapsed_us: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Cpu:
    """One host CPU and what it shares with others."""

    id: int
    socket: int = 0
    llc: int = 0
    core: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class ActuatorLimits:
    """What the actuator takes, and what it can really bring about.

    :ivar effective_min_slice_us: below this a slice is accepted by the
        kernel but not realised (on HZ=250, the 4 ms tick).
    :ivar min_shares: least ``cpu_shares`` (2 on cgroup v1, 1 on v2).
    :ivar max_shares: greatest (262144 on cgroup v1, 10000 on v2).
    """

    min_period_us: int = 1_000
    max_period_us: int = 1_000_000
    min_quota_us: int = 1_000
    max_quota_us: int = 17_592_186_044_415
    effective_min_slice_us: int = 1_000
    min_shares: int = 2
    max_shares: int = 10_000


@dataclasses.dataclass(frozen=True, slots=True)
class VmView:
    """One opted-in VM, as the controller sees it.

    :ivar cluster: id of its virtual cluster (server group), if any.
    :ivar original: its cputune before we first wrote to it.
    :ivar in_force: its cputune now, all fields known.
    :ivar repin: False for dedicated-CPU and NUMA-pinned guests.
    :ivar time_slice_us: the administrator-specified slice of Algorithm 2.
    :ivar allowed_cpus: CPUs its original pinning allows; None for all.
    """

    uuid: str
    vcpus: int
    workload: Workload = Workload.GENERAL
    paradigm: Paradigm = Paradigm.MPI
    io_pool: IoPoolUse = IoPoolUse.AUTO
    time_slice_us: int | None = None
    cluster: str | None = None
    repin: bool = True
    allowed_cpus: frozenset[int] | None = None
    original: CpuTune = CpuTune()
    in_force: CpuTune = CpuTune()
    sample: Sample = Sample()


@dataclasses.dataclass(frozen=True, slots=True)
class OtherVm:
    """A VM that did not opt in: read, never written.

    Windows must leave such VMs their fair share, so it must be known how
    much they want.

    :ivar shares: its ``cpu_shares``; None where that is not known.
    :ivar share: fraction of a CPU that each vCPU may use; None if unlimited.
    :ivar vcpu_pins: one set of host CPUs per vCPU that is shown; None where
        that is not known.
    """

    uuid: str
    vcpus: int
    shares: int | None = None
    sample: Sample = Sample()
    share: float | None = None
    vcpu_pins: tuple[frozenset[int], ...] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class PeerView:
    """What the other hosts of a virtual cluster say, leases still good.

    :ivar io: some other host sees the cluster in the I/O phase.
    :ivar min_slice_us: least slice on the other hosts, if they share it.
    """

    io: bool = False
    min_slice_us: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class HostView:
    """All the controller may know in one tick.

    :ivar tick: number of the tick; +1 each.
    :ivar now_us: monotonic time. The controller itself has no clock.
    :ivar wall_us: wall-clock time, for windows aligned between hosts.
    :ivar cpus: CPUs we may pin to: ``cpu_shared_set`` within the CPUs
        that the process may use.
    :ivar peers: by cluster id.
    :ivar others: running VMs of the host that did not opt in.
    :ivar window_late_us: mean time from a gang window's border until its
        weights are in force; 0 where that is not known.
    """

    tick: int
    now_us: int
    period_us: int
    cpus: tuple[Cpu, ...]
    vms: tuple[VmView, ...]
    wall_us: int = 0
    limits: ActuatorLimits = ActuatorLimits()
    peers: Mapping[str, PeerView] = dataclasses.field(default_factory=dict)
    others: tuple[OtherVm, ...] = ()
    window_late_us: float = 0.0


class VmPlan(NamedTuple):
    """What is to be in force for one VM, and why.

    A tuple, as it is quickly made: with each prediction there is a new one.

    :ivar tune: the whole wanted cputune; None fields stay as they are.
    :ivar writes: only the fields of ``tune`` that differ from what is in
        force; None when there is nothing to write. Period and quota come
        together: one without the other would change the CPU share.
    :ivar slice_us: the time slice; None where it is the kernel's own.
    :ivar reason: one short phrase for logs, ``nova-vhpc-top`` and replay.
    """

    uuid: str
    tune: CpuTune
    writes: CpuTune | None
    slice_us: int | None
    phase: Phase
    reason: str = ''
    predicted_events: float | None = None
    threshold_events: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Turn:
    """One gang window: how long it lasts and what everyone weighs in it.

    :ivar width_us: its length.
    :ivar favoured: VMs whose vCPUs are to run together in this window.
    :ivar shares: ``cpu_shares`` by VM uuid, for every VM of the schedule.
    """

    width_us: int
    favoured: frozenset[str]
    shares: Mapping[str, int]


@dataclasses.dataclass(frozen=True, slots=True)
class WindowSchedule:
    """Gang windows, to be played in turn until the next plan.

    The turn at wall-clock time *t* is found by ``t modulo`` the sum of the
    widths, so hosts with synchronised clocks and equal schedules favour
    the members of a cluster in the same windows without any message.

    :ivar shares_after: ``cpu_shares`` of each VM when the schedule ends.
    """

    turns: tuple[Turn, ...]
    shares_after: Mapping[str, int]

    @property
    def cycle_us(self) -> int:
        """Length of one whole rotation."""
        return sum(turn.width_us for turn in self.turns)

    def turn_at(self, wall_us: int) -> tuple[int, int]:
        """Index of the turn at a time, and how long it still lasts (us)."""
        cycle_us = self.cycle_us
        if not self.turns or cycle_us <= 0:
            raise ValueError('a schedule without turns has no turn to play')
        offset_us = wall_us % cycle_us
        for index, turn in enumerate(self.turns):
            if offset_us < turn.width_us:
                return index, turn.width_us - offset_us
            offset_us -= turn.width_us
        raise AssertionError('unreachable: offset is within the cycle')


class ClusterPlan(NamedTuple):
    """What this host has to tell the cluster's other hosts.

    :ivar phase: from this host's own members only, not from its peers.
    :ivar min_slice_us: least slice computed here; None without one.
    """

    phase: Phase
    min_slice_us: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Pools:
    """The host's two disjoint pools of CPUs.

    :ivar lent: nobody is in the I/O phase, so VMs of the computing pool
        may use the I/O pool's CPUs until somebody is.
    """

    io: frozenset[int]
    computing: frozenset[int]
    lent: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Diagnostic:
    """Input that was not used, and why; uuid '' for the host's own."""

    uuid: str
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """The controller's answer to one :class:`HostView`."""

    vms: Mapping[str, VmPlan]
    windows: WindowSchedule | None = None
    clusters: Mapping[str, ClusterPlan] = dataclasses.field(
        default_factory=dict
    )
    ignored: tuple[Diagnostic, ...] = ()
    pools: Pools | None = None
