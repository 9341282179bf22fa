# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Settings of the control core; the defaults are the papers' values.

The agent fills them from ``[vhpc_control]``, tests and the replay from keyword
arguments. Times are in microseconds, *periods* are control periods. "Ours"
marks what is in none of the papers.
"""

import dataclasses

from nova_vhpc.control import model

LEAVE_RULES = ('learned', 'paper')


@dataclasses.dataclass(frozen=True, slots=True)
class ControlConfig:
    """Settings of the controller and its policies.

    ATC paper, section III:

    :ivar default_slice_us: DEFAULT; written as "leave the original".
    :ivar alpha_us: the coarse step, "e.g., decrease by 1ms".
    :ivar beta_us: the fine step; with 100 us, seven of them lead from the
        coarse step exactly to minThreshold.
    :ivar min_threshold_us: minThreshold; never below the actuator's effective
        minimum.
    :ivar atc_literal: whether to follow Algorithm 1 to the letter, gaps
        included, without guard and latency floor.
    :ivar latency_floor_us: synchronisation latency per period that counts
        as zero (ours: on Linux it is never exactly zero).
    :ivar guard: whether to take back a shortening that made the latency worse
        (ours).
    :ivar guard_window: number of periods whose latencies are compared, before
        and after a slice was shortened.
    :ivar guard_margin: least relative increase of the latency that counts;
        0.1 is 10%.
    :ivar guard_hold: number of periods for which the slice is not shortened
        again; doubles each time.
    :ivar share_slices: whether Algorithm 2's minimum is taken over the other
        hosts of a virtual cluster, too (ours).

    The other slice policies:

    :ivar fixed_slice_us: slice of ``fixed``.
    :ivar micro_slice_us: slice of latency VMs with ``vslicer``.
    :ivar dss_events_per_slice: I/O events that a VM may get between two of its
        slices with ``dss``.

    Gang windows (``gang``):

    :ivar gang_window_us: length of a gang's window if borders cost little.
    :ivar gang_max_window_us: greatest length of a window if they cost more.
    :ivar gang_min_window_us: least length of the shortest window or pause of
        a rotation. In pauses, VMs outside of gangs run.
    :ivar gang_favour: weight of a favoured VM, as a multiple of that of the
        heaviest VM.
    :ivar harm_limit: part of the CPU time that stock Linux would give a VM,
        outside of gangs, that gang windows may cost it.

    I/O-perception paper, section III:

    :ivar sample_us: sampling period of I/O phases.
    :ivar io_floor_events: an Otsu threshold below this is raised to it, which
        keeps programs with next to no I/O out of the I/O pool (ours).
    :ivar otsu_history: number of samples that the threshold is computed from.
    :ivar otsu_renewal: number of samples after which it is computed again.
    :ivar leave_periods: number of low periods in a row before a VM may leave.
    :ivar leave_rule: ``paper``, or ``learned`` (ours; see ``phases``).
    :ivar move_cost_periods: cost of a needless move out and back, in periods
        spent needlessly in the I/O pool (``learned``).

    Pools:

    :ivar io_pool_cpus: CPUs of the I/O pool; None to size it by demand.
    :ivar computing_pool_cpus: CPUs of the computing pool; None for all but
        the I/O pool.
    :ivar io_slice_us: time slice in the I/O pool ("short period"; the paper's
        0.5 ms is below what libvirt takes).
    :ivar pool_shrink_periods: number of periods for which demand must be lower
        before the I/O pool shrinks, and for which the pool must be empty
        before its CPUs are lent out.
    :ivar rebalance_periods: number of periods for which CPUs must be unevenly
        loaded before a VM is moved among them, and for which intermittent
        VMs must leave more weight to gangs before these use it.
    """

    default_slice_us: int = model.DEFAULT_SLICE_US
    alpha_us: int = 1_000
    beta_us: int = 100
    min_threshold_us: int = model.MIN_THRESHOLD_US
    atc_literal: bool = False
    latency_floor_us: float = 100.0
    guard: bool = True
    guard_window: int = 5
    guard_margin: float = 0.1
    guard_hold: int = 100
    share_slices: bool = False
    fixed_slice_us: int = 10_000
    micro_slice_us: int = 5_000
    dss_events_per_slice: float = 10.0
    gang_window_us: int = 50_000
    gang_max_window_us: int = 200_000
    gang_min_window_us: int = 20_000
    gang_favour: int = 40
    harm_limit: float = 0.05
    sample_us: int = 100_000
    io_floor_events: float = 50.0
    otsu_history: int = 200
    otsu_renewal: int = 50
    leave_periods: int = 3
    leave_rule: str = 'learned'
    move_cost_periods: int = 20
    io_pool_cpus: frozenset[int] | None = None
    computing_pool_cpus: frozenset[int] | None = None
    io_slice_us: int = 1_000
    pool_shrink_periods: int = 100
    rebalance_periods: int = 50
