# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Options of the control core: group ``[vhpc_control]``."""

from typing import Any

from oslo_config import cfg

from nova_vhpc.conf import types
from nova_vhpc.control import config as control_config

GROUP = cfg.OptGroup(
    'vhpc_control',
    title='nova-vhpc control core',
    help='How nova-vhpc-agent decides on time slices, pins and I/O phases. '
    'The defaults need no tuning per program.',
)

_DEFAULTS = control_config.ControlConfig()


def _integer(name: str, low: int, high: int, help_text: str) -> Any:
    return cfg.Opt(
        name,
        type=types.Integer(low, high),
        default=getattr(_DEFAULTS, name),
        help=help_text,
    )


def _decimal(name: str, low: float, high: float, help_text: str) -> Any:
    return cfg.Opt(
        name,
        type=types.Finite(low, high),
        default=getattr(_DEFAULTS, name),
        help=help_text,
    )


OPTS: list[Any] = [
    cfg.StrOpt(
        'slice_policy',
        default='gang',
        help='Time slice policy, by entry point name: gang (windows in which '
        'the vCPUs of one parallel VM run together), atc (adaptive, from the '
        'synchronisation latency), dss (from I/O), vslicer (micro '
        'slices for latency VMs), fixed, or none. Change it to compare '
        'policies; each can be combined with each pinning_policy. All but '
        'gang and none act only on VMs whose flavor has quota:cpu_quota; '
        'nova-vhpc-top names the others.',
    ),
    cfg.StrOpt(
        'pinning_policy',
        default='balance',
        help='Pinning policy, by entry point name: balance (siblings of a '
        'VM on different CPUs), io_pool (the same, and VMs in the I/O phase '
        'on separate CPUs; try it if programs communicate in bursts and '
        'the host has four CPUs or more), or none.',
    ),
    cfg.StrOpt(
        'predictor',
        default='adaptive',
        help='Predictor of I/O events, by entry point name: adaptive needs '
        'no tuning; rle is the predictor of the paper; last_value, ewma, '
        'markov and gpht are for comparison. Predictions are made and used '
        'with pinning_policy = io_pool only.',
    ),
    _integer(
        'default_slice_us',
        1_000,
        1_000_000,
        'Default time slice of ATC (DEFAULT), in microseconds: a VM with '
        'this slice keeps the period and quota of its flavor. Change it only '
        "if the host kernel's own slice differs; the paper has 30 ms.",
    ),
    _integer(
        'alpha_us',
        1,
        1_000_000,
        'Coarse step of ATC per control period, in microseconds. Raise it, '
        'for example to 3000, if slices follow too slowly.',
    ),
    _integer(
        'beta_us',
        1,
        1_000_000,
        'Fine step of ATC per control period, in microseconds, for slices up '
        'to alpha_us. Must be less than alpha_us; try a tenth of it.',
    ),
    _integer(
        'min_threshold_us',
        1,
        1_000_000,
        'Shortest time slice of ATC, in microseconds (minThreshold, 0.3 ms '
        'in the paper). Slices are never shorter than the host can enforce, '
        'so lower values have no effect. Raise it, for example to 8000, if '
        'short slices cost too much throughput.',
    ),
    cfg.BoolOpt(
        'atc_literal',
        default=_DEFAULTS.atc_literal,
        help="Run ATC's Algorithm 1 exactly as published: without guard, "
        'without latency floor and without the rules that fill its gaps. '
        'Turn it on only to compare with the paper.',
    ),
    _decimal(
        'latency_floor_us',
        0,
        1000000000,
        'Synchronisation latency per control period, in microseconds, '
        'below which ATC counts it as zero. Raise it if slices stay short '
        'although the programs are idle; 0 is the rule of the paper.',
    ),
    cfg.BoolOpt(
        'guard',
        default=_DEFAULTS.guard,
        help='Return to the longer time slice for a while if the latency got '
        'worse with a shorter one. Turn it off only to compare: on Linux, a '
        'shorter slice is not always better.',
    ),
    _integer(
        'guard_window',
        2,
        1_000,
        'Number of control periods before and after a change whose latency '
        'the guard compares. Raise it on noisy hosts, for example to 20.',
    ),
    _decimal(
        'guard_margin',
        0,
        100,
        'Least relative increase of the latency, beyond noise, on which the '
        'guard acts; 0.1 is 10%. Raise it, for example to 0.3, if the guard '
        'acts too often.',
    ),
    _integer(
        'guard_hold',
        1,
        1_000_000,
        'Control periods for which the guard allows no shorter slice after '
        'it has acted; doubles each time, up to sixteenfold. 100 is 10 s '
        'with the default control period. Raise it if the slices still '
        'change too often; try 300.',
    ),
    cfg.BoolOpt(
        'share_slices',
        default=_DEFAULTS.share_slices,
        help='Let all hosts of a virtual cluster use the shortest slice that '
        'ATC has found on one of them. Needs [vhpc_peers]. Turn it on for '
        'programs that synchronise between hosts all the time.',
    ),
    _integer(
        'fixed_slice_us',
        1_000,
        1_000_000,
        'Time slice of the fixed policy, in microseconds. libvirt accepts '
        '1000 and more; try 10000.',
    ),
    _integer(
        'micro_slice_us',
        1_000,
        1_000_000,
        'Time slice that vslicer gives to VMs with vhpc:workload=latency, '
        'in microseconds; try 5000.',
    ),
    _decimal(
        'dss_events_per_slice',
        0.1,
        1000000,
        'Number of I/O events that dss expects during one time slice: it '
        'sets the slice by it. Lower it for shorter slices.',
    ),
    _integer(
        'gang_window_us',
        5_000,
        1_000_000,
        'Least width of a gang window, in microseconds. Shorter windows (try '
        '20000) shorten the pauses of each parallel program, longer ones '
        '(100000) waste less at the borders. Above 200000, raise '
        'gang_max_window_us with it. It is also the length of the slots that '
        'the hosts of a cluster agree on, so set the same on all hosts: those '
        'with another value do not agree, which status and log say.',
    ),
    _integer(
        'gang_max_window_us',
        5_000,
        1_000_000,
        'Greatest width of a gang window, in microseconds, at least '
        'gang_window_us. Windows that begin late are widened up to this, but '
        'not those in slots that the hosts of a cluster agreed on. Set '
        'it to gang_window_us for windows of one width, for example if the '
        'hosts of a cluster differ much in speed.',
    ),
    _integer(
        'gang_min_window_us',
        5_000,
        1_000_000,
        'Least length of the shortest gang window or pause of a rotation, in '
        'microseconds. In pauses the VMs outside of gangs run. Lower it, for '
        'example to 10000, if they must run more often; with HZ=250 the '
        'kernel divides time in steps of 4000.',
    ),
    _integer(
        'gang_favour',
        2,
        1_000,
        'Factor by which the cpu_shares of a parallel VM exceed those of '
        'other VMs in its window. Lower it, for example to 5, if VMs outside '
        'of gangs respond too slowly; raise it if siblings do not run '
        'together.',
    ),
    _decimal(
        'harm_limit',
        0.01,
        0.5,
        'Part of the CPU time that the kernel alone would give a server '
        'outside of gangs that gang windows may cost it. Where windows cost '
        'one more for some seconds, they are switched off for a while. '
        'Lower it, for example to 0.03, if neighbours must not notice '
        'anything; raise it, for example to 0.1, if parallel programs gain '
        'too little on hosts that are shared with busy servers.',
    ),
    _decimal(
        'io_floor_events',
        0,
        1000000000,
        'I/O events per 100 ms below which a VM is never in the I/O '
        'phase, whatever its threshold. Raise it if VMs that do little I/O '
        'are moved; 0 is the rule of the paper.',
    ),
    _integer(
        'otsu_history',
        2,
        100_000,
        'Number of samples (of 100 ms) from which the I/O threshold is '
        'computed, 200 in the paper. They must cover several iterations of a '
        'program: raise it, for example to 600, for programs with long ones.',
    ),
    _integer(
        'otsu_renewal',
        1,
        100_000,
        'Number of samples (of 100 ms) after which the I/O threshold is '
        'computed again, 50 in the paper. At most otsu_history. Lower it, for '
        'example to 20, if programs change their behaviour often.',
    ),
    _integer(
        'leave_periods',
        1,
        10_000,
        'Number of periods (of 100 ms) with little I/O after which a VM may '
        'leave the I/O pool, 3 in the paper. With leave_rule = learned, the '
        'least number. Raise it, for example to 5, if VMs leave too early.',
    ),
    cfg.StrOpt(
        'leave_rule',
        default=_DEFAULTS.leave_rule,
        choices=[
            (
                'learned',
                'wait as long as was best on the latest pauses of the '
                'program, so that short pauses cause no moves',
            ),
            ('paper', 'leave after leave_periods'),
        ],
        help='When a virtual cluster leaves the I/O pool. Set paper only to '
        'compare: with it, programs such as CG are moved back and forth.',
    ),
    _integer(
        'move_cost_periods',
        1,
        10_000,
        'Cost of moving out of the I/O pool and back, as the number of '
        'periods (of 100 ms) in the pool without need that cost the same. '
        'With leave_rule = learned, a VM also waits no longer than this. '
        'Raise it if VMs still move too often; try 20.',
    ),
    cfg.Opt(
        'io_pool_cpus',
        type=types.CpuSet(),
        help='Host CPUs of the I/O pool, such as 8-15; best those of a '
        'whole socket. Unset, demand decides the size of the pool, in the '
        'last socket. A parallel VM with more vCPUs than the pool has CPUs '
        'stays in the computing pool.',
    ),
    cfg.Opt(
        'computing_pool_cpus',
        type=types.CpuSet(),
        help='Host CPUs of the computing pool, such as 0-7. Unset, all CPUs '
        'that are not in the I/O pool. Must not overlap with io_pool_cpus. '
        'Set it to keep some CPUs out of both pools.',
    ),
    _integer(
        'io_slice_us',
        1_000,
        1_000_000,
        'Time slice of VMs in the I/O pool, in microseconds. libvirt accepts '
        '1000 and more, and slices are never shorter than the host can '
        'enforce. Raise it if programs in the pool lose throughput; try 5000.',
    ),
    _integer(
        'pool_shrink_periods',
        1,
        1_000_000,
        'Number of control periods in a row that must need fewer CPUs before '
        'the I/O pool shrinks. Raise it, for example to 600, if its size '
        'changes too often.',
    ),
    _integer(
        'rebalance_periods',
        1,
        1_000_000,
        'Number of control periods for which CPUs must be unevenly loaded '
        'before a VM is moved between them, and for which busy servers must '
        'leave more room to gang windows before these use it. Raise it, for '
        'example to 600, if VMs or the programs in them often start and end.',
    ),
]

NAMES = frozenset(option.name for option in OPTS)


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the group on ``conf``."""
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts() -> list[tuple[Any, list[Any]]]:
    """Return the group and its options, for sample file and reference."""
    return [(GROUP, OPTS)]
