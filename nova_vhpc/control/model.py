# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Input and output of the control core.

Everything here is an immutable value. The agent fills a :class:`HostView` once
per tick and hands it to ``controller.decide``; the answer is a :class:`Plan`.
Times are in microseconds, CPU numbers are the kernel's. The values of gang
windows are written in :mod:`.windows`, and used from here.
"""

import dataclasses
import enum
from collections.abc import Mapping
from typing import NamedTuple

from nova_vhpc.control.windows import IDLE_SHARES as IDLE_SHARES
from nova_vhpc.control.windows import Turn as Turn
from nova_vhpc.control.windows import WindowSchedule as WindowSchedule

UNLIMITED = -1
"""A quota that does not limit, as libvirt returns it."""

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
    """What a VM is doing now (I/O-perception paper, section III.B)."""

    COMPUTING = 'computing'
    IO = 'io'


@dataclasses.dataclass(frozen=True, slots=True)
class CpuTune:
    """libvirt's cputune of one domain; a field that is None is not written.

    :ivar period_us: enforcement period of each vCPU, in microseconds.
    :ivar quota_us: CPU time of each vCPU per period, in microseconds, or
        :data:`UNLIMITED`.
    :ivar shares: ``cpu_shares``, the weight of the whole domain.
    :ivar vcpu_pins: one set of host CPUs per vCPU, in vCPU order.
    """

    period_us: int | None = None
    quota_us: int | None = None
    shares: int | None = None
    vcpu_pins: tuple[frozenset[int], ...] | None = None

    @property
    def share(self) -> float | None:
        """Part of a CPU that each vCPU may use; None if unlimited."""
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
    """Measurements of one VM in one control period.

    A field is None if it could not be measured. Values may be impossible (NaN,
    negative after a counter reset): the controller checks them.

    :ivar sync_latency_us: mean time that a vCPU was held up
        (*synchronisation latency*), in microseconds per control period.
    :ivar io_events: I/O events, scaled to 100 ms.
    :ivar vcpu_run_us: CPU time that each vCPU used in the period.
    :ivar vcpu_wait_us: time that each vCPU was runnable but not running.
    :ivar vcpu_runs: number of times each vCPU was put on a CPU (schedstat's
        third field); a vCPU that spins has few, long runs.
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
    """One host CPU, and what it shares with other CPUs.

    :ivar id: the kernel's number of the CPU.
    :ivar llc: number of its last-level cache.
    """

    id: int
    socket: int = 0
    llc: int = 0
    core: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class ActuatorLimits:
    """Values that the actuator accepts, and the shortest effective slice.

    :ivar effective_min_slice_us: the kernel accepts shorter slices but does
        not bring them about (with HZ=250, the 4 ms tick).
    :ivar min_shares: least ``cpu_shares`` (2 on cgroup v1, 1 on v2).
    :ivar max_shares: greatest ``cpu_shares`` (262144 on cgroup v1, 10000 on
        v2).
    :ivar thread_slices: whether an actuator also gives a slice to each vCPU's
        thread, for which a VM needs no quota.
    :ivar can_idle: whether the actuator takes :data:`IDLE_SHARES`.
    :ivar can_place: whether vCPUs can be placed for a window (``Turn.cpus``).
    """

    min_period_us: int = 1_000
    max_period_us: int = 1_000_000
    min_quota_us: int = 1_000
    max_quota_us: int = 17_592_186_044_415
    effective_min_slice_us: int = 1_000
    min_shares: int = 2
    max_shares: int = 10_000
    thread_slices: bool = False
    can_idle: bool = False
    can_place: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class VmView:
    """One managed VM, as the controller sees it.

    :ivar time_slice_us: the administrator-specified slice of Algorithm 2.
    :ivar cluster: id of its virtual cluster (server group); None for none.
    :ivar repin: whether it may be pinned; False for dedicated CPUs and guests
        that are bound to a NUMA node.
    :ivar allowed_cpus: CPUs that its original pinning allows; None for all.
    :ivar original: its cputune before the agent first wrote to it.
    :ivar in_force: its cputune now, all fields known.
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
    """An unmanaged VM: read, never written.

    Gang windows must leave such VMs their fair share, so their demand must be
    known.

    :ivar shares: its ``cpu_shares``; None if unknown.
    :ivar share: part of a CPU that each vCPU may use; None if unlimited.
    :ivar vcpu_pins: one set of host CPUs per vCPU that is shown; None if
        unknown.
    """

    uuid: str
    vcpus: int
    shares: int | None = None
    sample: Sample = Sample()
    share: float | None = None
    vcpu_pins: tuple[frozenset[int], ...] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class PeerView:
    """Statements of the other hosts of a virtual cluster, while they hold.

    :ivar io: whether any other host sees the cluster in the I/O phase.
    :ivar min_slice_us: least slice on the other hosts; None if they do not
        share it.
    """

    io: bool = False
    min_slice_us: int | None = None


class ClusterSlot(NamedTuple):
    """Slots of the wall clock in which a cluster runs, on all of its hosts.

    :ivar slots: a bit mask: bit *n* stands for slot *n* of each frame of 16.
    :ivar epoch: grows whenever the cluster gets other slots.
    """

    slots: int
    epoch: int = 0


class GangDemand(NamedTuple):
    """What one gang of this host is entitled to.

    :ivar key: the same on all hosts: the cluster's id, or the VM's uuid.
    :ivar width: number of CPUs that it needs at the same time.
    :ivar part: part of the time, 0 to 1, in which its vCPUs should run
        together.
    :ivar plays: whether this host would play windows for it. If not, its
        cluster gets no slots on any host.
    """

    key: str
    width: int
    part: float
    plays: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class HostView:
    """All that the controller knows in one tick.

    :ivar tick: number of the tick; grows by one.
    :ivar now_us: monotonic time. The controller itself has no clock.
    :ivar period_us: length of the control period.
    :ivar cpus: CPUs that VMs may be pinned to, in order of their numbers:
        ``cpu_shared_set`` within the CPUs that the agent may use.
    :ivar vms: the managed VMs.
    :ivar wall_us: wall-clock time, for windows aligned between hosts.
    :ivar peers: statements of other hosts, by cluster id.
    :ivar others: running unmanaged VMs of the host.
    :ivar window_late_us: mean time from a gang window's border until its
        weights are in force; 0 if unknown.
    :ivar outside_cpus: CPUs that something else than VMs uses, mean over about
        a second; 0.0 if unknown.
    :ivar slots: slots on which the hosts of a cluster agreed, by its id; None
        for a cluster on several hosts that has none on all of them.
        Clusters without an agreement are missing. No slot needs more CPUs
        than there are.
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
    outside_cpus: float = 0.0
    slots: Mapping[str, ClusterSlot | None] = dataclasses.field(
        default_factory=dict
    )


class VmPlan(NamedTuple):
    """What is to be in force for one VM, and why.

    A tuple because it is made faster than a dataclass: each new prediction
    makes a new plan.

    :ivar tune: the whole wanted cputune; fields that are None stay as they
        are.
    :ivar writes: the fields of ``tune`` that differ from what is in force;
        None if there is nothing to write. Period and quota come together,
        because one without the other would change the CPU share.
    :ivar slice_us: the time slice; None if it is the kernel's own.
    :ivar phase: phase of the VM, other hosts' statements included.
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


class ClusterPlan(NamedTuple):
    """What this host tells the other hosts of a virtual cluster.

    :ivar phase: phase of the members on this host, without statements of
        other hosts.
    :ivar min_slice_us: least slice computed here; None if there is none.
    """

    phase: Phase
    min_slice_us: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Pools:
    """The host's two disjoint pools of CPUs.

    :ivar lent: whether VMs of the computing pool may use the I/O pool's CPUs,
        because no VM is in the I/O phase.
    """

    io: frozenset[int]
    computing: frozenset[int]
    lent: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Shares:
    """How the CPU time that VMs received compares with their entitlement.

    :ivar received: CPU time received, as a part of what stock Linux would
        give, of each VM of a host with gangs, by uuid; mean over some seconds.
    :ivar missing: the largest part that windows cost any VM, 0.0 to 1.0.
    :ivar played: part of the time in which windows are played, 0.0 to 1.0.
    """

    received: Mapping[str, float]
    missing: float
    played: float


class WaitState(enum.StrEnum):
    """How a program waits, as far as a host can see."""

    WAITS = 'waits'
    """Its vCPUs sleep at times: it needs no windows."""
    SPINS = 'spins'
    """vCPUs never sleep, and none of them waits for a sibling for long."""
    HELD_UP = 'held-up'
    """vCPUs never sleep, and are held up: they spin for each other."""


class Waiting(NamedTuple):
    """How a VM's program waits.

    :ivar vcpus: number of its vCPUs.
    :ivar busy_vcpus: number of those that never sleep.
    :ivar run_part: part of the time, 0 to 1, for which the one of these runs
        that runs least.
    :ivar peers_wait: whether other members of its cluster on this host sleep
        while they wait.
    """

    state: WaitState
    vcpus: int
    busy_vcpus: int = 0
    run_part: float = 0.0
    peers_wait: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Diagnostic:
    """Input that was not used, or a setting that was not made, and why.

    :ivar uuid: the VM that it is about; '' for the host.
    """

    uuid: str
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """The controller's answer to one :class:`HostView`.

    :ivar vms: plans by uuid.
    :ivar windows: gang windows to be played; None for none.
    :ivar clusters: what to tell other hosts, by cluster id.
    :ivar ignored: what the controller could not use or do, and why.
    :ivar pools: the host's pools; None if there are none.
    :ivar cpu_shares: what VMs received of their entitlement; None if that is
        not measured, as without gangs.
    :ivar gangs: what gangs are entitled to, to agree with other hosts on
        slots.
    :ivar waiting: how programs wait, by uuid; VMs of which that is not known
        are missing.
    """

    vms: Mapping[str, VmPlan]
    windows: WindowSchedule | None = None
    clusters: Mapping[str, ClusterPlan] = dataclasses.field(
        default_factory=dict
    )
    ignored: tuple[Diagnostic, ...] = ()
    pools: Pools | None = None
    cpu_shares: Shares | None = None
    gangs: tuple[GangDemand, ...] = ()
    waiting: Mapping[str, Waiting] = dataclasses.field(default_factory=dict)
