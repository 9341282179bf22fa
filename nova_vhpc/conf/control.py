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
        'slices for latency VMs), fixed, or none. Change it to compare; any '
        'goes with any pinning_policy.',
    ),
    cfg.StrOpt(
        'pinning_policy',
        default='balance',
        help='Pinning policy, by entry point name: balance (siblings of a '
        'VM on different CPUs), io_pool (that, and VMs in the I/O phase on '
        'CPUs of their own; try it where programs communicate in bursts and '
        'the host has four CPUs or more), or none.',
    ),
    cfg.StrOpt(
        'predictor',
        default='adaptive',
        help='Predictor of I/O events, by entry point name: adaptive needs '
        'no tuning; rle is that of the paper; last_value, ewma, markov and '
        'gpht are there to compare. Only pinning_policy = io_pool needs '
        'predictions; without it none are made.',
    ),
    _integer(
        'default_slice_us',
        1_000,
        1_000_000,
        'DEFAULT of ATC, in microseconds: a VM at this slice keeps the '
        'period and quota of its flavor. Change it only with the kernel: 30 '
        'ms is the value of the paper.',
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
        'Fine step of ATC, for slices of alpha_us and less. Must be less '
        'than alpha_us; try a tenth of it.',
    ),
    _integer(
        'min_threshold_us',
        1,
        1_000_000,
        'Least slice of ATC (minThreshold, 0.3 ms in the paper). What the '
        'host can really bring about bounds it from below, so a change '
        'matters only above that: raise it, for example to 8000, if short '
        'slices cost too much throughput.',
    ),
    cfg.BoolOpt(
        'atc_literal',
        default=_DEFAULTS.atc_literal,
        help="Run ATC's Algorithm 1 to the letter: without guard, latency "
        'floor, and our filling of its gaps. Only for comparing with the '
        'paper.',
    ),
    _decimal(
        'latency_floor_us',
        0,
        1000000000,
        'Synchronisation latency per control period, in microseconds, '
        'that ATC takes for zero. Raise it if slices stay short although '
        'the programs are idle; 0 is the letter of the paper.',
    ),
    cfg.BoolOpt(
        'guard',
        default=_DEFAULTS.guard,
        help='Take a shorter slice back when the latency got worse with it, '
        'and leave it so for a while. Switch it off only to compare: on '
        'Linux, shorter is not always better.',
    ),
    _integer(
        'guard_window',
        2,
        1_000,
        'Control periods whose latency the guard compares, before and '
        'after. Raise it on noisy hosts, for example to 20.',
    ),
    _decimal(
        'guard_margin',
        0,
        100,
        'Least relative worsening that the guard acts on, above noise. '
        '0.1 is 10%.',
    ),
    _integer(
        'guard_hold',
        1,
        1_000_000,
        'Control periods for which the guard does not try a shorter slice '
        'again; doubles each time, up to sixteenfold. 100 is 10 s.',
    ),
    cfg.BoolOpt(
        'share_slices',
        default=_DEFAULTS.share_slices,
        help="Let the hosts of a virtual cluster agree on ATC's least slice. "
        'Needs [vhpc_peers]. Try it for programs that synchronise between '
        'hosts all the time.',
    ),
    _integer(
        'fixed_slice_us',
        1_000,
        1_000_000,
        'Time slice of the fixed policy, in microseconds. libvirt takes '
        'nothing below 1000; try 10000.',
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
        'I/O events that dss lets come in during one time slice. Lower '
        'it for shorter slices.',
    ),
    _integer(
        'gang_window_us',
        5_000,
        1_000_000,
        'Least width of a gang window, in microseconds. Shorter windows (try '
        '20000) shorten the pauses of each parallel program, longer ones '
        '(100000) waste less at the borders. Above 200000, raise '
        'gang_max_window_us with it.',
    ),
    _integer(
        'gang_max_window_us',
        5_000,
        1_000_000,
        'Windows are widened up to this, in microseconds, where they begin '
        'late; at least gang_window_us. Set it to that for '
        'windows of one width, for example so that hosts of very different '
        'speed agree.',
    ),
    _integer(
        'gang_min_window_us',
        5_000,
        1_000_000,
        'Least width of the windows that gang leaves to VMs that take no '
        'part, in microseconds. Lower it if those need to run more often; '
        'a kernel with HZ=250 divides no finer than 4000.',
    ),
    _integer(
        'gang_favour',
        2,
        1_000,
        'How many times the cpu_shares of others a parallel VM gets in its '
        'window. Lower it, for example to 5, if VMs that take no part '
        'answer too slowly; raise it if siblings do not run together.',
    ),
    _decimal(
        'io_floor_events',
        0,
        1000000000,
        'I/O events per 100 ms below which a VM is never in the I/O '
        'phase, whatever its threshold. Raise it if VMs that do little I/O '
        'are moved; 0 is the letter of the paper.',
    ),
    _integer(
        'otsu_history',
        2,
        100_000,
        'Samples (of 100 ms) that the I/O threshold is computed from. Must '
        'cover several iterations of a program; 200 is the value of the '
        'paper.',
    ),
    _integer(
        'otsu_renewal',
        1,
        100_000,
        'Samples after which the I/O threshold is renewed, 50 in the paper. '
        'At most otsu_history.',
    ),
    _integer(
        'leave_periods',
        1,
        10_000,
        'Periods (of 100 ms) with little I/O before a VM may leave the I/O '
        'pool, three in the paper. With leave_rule = learned, the least '
        'number.',
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
        help='When a virtual cluster leaves the I/O pool. Use paper only to '
        'compare: it moves programs such as CG back and forth.',
    ),
    _integer(
        'move_cost_periods',
        1,
        10_000,
        'What moving out of the I/O pool and back costs, in periods (of 100 '
        'ms) spent there needlessly; also the longest pause that '
        'leave_rule = learned sits out. Raise it if VMs still move too '
        'often; try 20.',
    ),
    cfg.StrOpt(
        'io_pool_cpus',
        help='Host CPUs of the I/O pool, such as 8-15; best a socket of its '
        'own. Unset, the pool is sized from demand and lies in the last '
        'socket. A parallel VM with more vCPUs than the pool has CPUs stays '
        'in the computing pool.',
    ),
    cfg.StrOpt(
        'computing_pool_cpus',
        help='Host CPUs of the computing pool. Unset, all CPUs that are not '
        'in the I/O pool. Must not overlap with io_pool_cpus.',
    ),
    _integer(
        'io_slice_us',
        1_000,
        1_000_000,
        'Time slice in the I/O pool, in microseconds. libvirt takes nothing '
        'below 1000; what the host can bring about bounds it from below.',
    ),
    _integer(
        'pool_shrink_periods',
        1,
        1_000_000,
        'Control periods for which fewer CPUs must be needed before the I/O '
        'pool shrinks. Raise it, for example to 600, if its size changes '
        'too often.',
    ),
    _integer(
        'rebalance_periods',
        1,
        1_000_000,
        'Control periods for which CPUs must be unevenly loaded before a VM '
        'is moved among them, and for which a busy parallel VM must have no '
        'part in gang windows before it is unpinned. Raise it, for example to '
        '600, if VMs come and go often, or programs in them.',
    ),
]

NAMES = frozenset(option.name for option in OPTS)


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the group on ``conf``."""
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts() -> list[tuple[Any, list[Any]]]:
    """Return the group and its options, for sample file and reference."""
    return [(GROUP, OPTS)]
