# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Options of filter, weigher and planner: group ``[vhpc_scheduler]``."""

from typing import Any

from oslo_config import cfg

from nova_vhpc.conf import types

GROUP = cfg.OptGroup(
    'vhpc_scheduler',
    title='nova-vhpc: filter, weigher and planner',
    help='Read by nova-scheduler, from nova.conf.',
)

OPTS = [
    cfg.Opt(
        'weight_multiplier',
        type=types.Finite(min=0),
        default=20.0,
        help="""
Multiplier of VirtualClusterWeigher's weights against Nova's other weighers.

The raw weight of a host of the plan exceeds that of other hosts by at least
0.4, so 20 outweighs eight of Nova's own weighers at their default of 1.0.
Lower it (try 2.0) to let free RAM or CPUs matter more than the plan. With 0.0
nothing is planned, and Nova's weighers order the hosts. The aggregate
metadata key ``vhpc_weight_multiplier`` overrides it for the hosts of an
aggregate; there a negative number makes members avoid them.
""",
    ),
    cfg.Opt(
        'weight_of_unknown',
        type=types.Finite(),
        default=-1.0,
        help="""
Raw weight of a host whose topology is unknown or stale.

It has an effect only with ``unknown_topology = allow``. Other hosts weigh 0.0
to 1.0, so with the default such hosts are used last. Raise it to 0.0 while
agents are being rolled out over a cloud.
""",
    ),
    cfg.StrOpt(
        'unknown_topology',
        default='reject',
        choices=[
            ('reject', 'Members that need an uplink are not placed there.'),
            ('allow', 'The host is used if no other host is left.'),
        ],
        help="""
How to treat a host whose agent has published no topology, or none within
``topology_max_age``.

Set it to ``allow`` while agents are being rolled out. Topology does not
matter for flavors without network configuration and link speed.
""",
    ),
    cfg.Opt(
        'topology_max_age',
        type=types.Integer(min=0),
        default=1200,
        help="""
Seconds after which the topology that an agent published is stale; 0 for
never.

Set it to three or four times the agents' own
``[vhpc_topology] stamp_interval`` (300 by default), so that one lost
write does not exclude a host.
""",
    ),
    cfg.Opt(
        'snapshot_ttl',
        type=types.Integer(1, types.MOST_SECONDS),
        default=30,
        help="""
Seconds between two bulk reads of all uplinks from Placement, in every
scheduler worker that has seen a request for a virtual cluster.

A stale snapshot never causes a wrong claim, because Placement itself makes
the claim, but it may cause a plan that spreads a cluster further than
necessary. Raise it (try 120) if Placement serves more than 5,000 hosts.
""",
    ),
    cfg.Opt(
        'snapshot_max_age',
        type=types.Integer(1, types.MOST_SECONDS),
        default=600,
        help="""
Seconds for which the last snapshot is used if Placement does not answer.
After that, hosts are rejected for requests that need topology, and the log
says why. Raise it (try 3600) if outages of Placement should not stop boots.
""",
    ),
    cfg.Opt(
        'refresh_timeout',
        type=types.Integer(1, types.MOST_SECONDS),
        default=60,
        help="""
Seconds after which a bulk read that has not ended is abandoned and another
one started. At 10,000 hosts with four uplinks each a read takes several
seconds. Raise it (try 120) if the log says that reads take longer.
""",
    ),
    cfg.Opt(
        'first_read_timeout',
        type=types.Finite(0.1, 86_400.0),
        default=15.0,
        help="""
Seconds for which the requests of a scheduler worker wait for its first bulk
read, counted from the first request. After that no request waits for it, even
if it hangs. Keep it below Nova's RPC timeout (60). See also
``fresh_read_timeout``.
""",
    ),
    cfg.Opt(
        'claim_attempts',
        type=types.Integer(min=0),
        default=512,
        help="""
Number of further claims that one member may try, at most, on other uplinks
of hosts that were tried before, if other schedulers claim the first uplinks.

Nova alone tries one uplink per host. With 0, a boot can fail although
uplinks are free. Raise it if more than 500 members are booted at once.
""",
    ),
    cfg.Opt(
        'fresh_read_timeout',
        type=types.Finite(0, 86_400.0),
        default=0.5,
        help="""
Seconds for which a request waits, at most, for a new bulk read if the last
snapshot is older than twice ``snapshot_ttl``, so that its members are planned
with current values. A worker without requests reads less often: its last
snapshot may be as old as half of ``snapshot_max_age``. No request waits if the
last read took longer than this.

A read takes about 0.2 s at 1,000 hosts. Raise it (try 5.0) on larger clouds
with few boots. With 0 only a worker's first request waits.
""",
    ),
    cfg.Opt(
        'spare_cpus',
        type=types.Integer(min=0),
        default=0,
        help="""
Host CPUs to leave free for the host's own packet work, for flavors
without ``vhpc:spare_cpus``.

Without a spare CPU, programs that communicate through a bridge lose 30 to
35% (HPCVirt'09, section 6.4). Suggested: 1 on hosts that serve bridges to
virtual clusters only.
""",
    ),
    cfg.Opt(
        'max_overcommit',
        type=types.OvercommitLimits(),
        default={'openmp': '1.0', 'hybrid': '1.0'},
        help="""
Number of vCPUs per host CPU, at most, for flavors without
``vhpc:max_overcommit``, by ``vhpc:paradigm``. Only Nova's limit applies to a
paradigm that is not listed. With any other name, or a value that is no number
above 0, nova-scheduler does not start.

Programs lose nothing while there are no more vCPUs than CPUs; beyond that,
OpenMP and hybrid codes lose steeply (NPC'09, section 4.2). Set
``mpi:1.0,openmp:1.0,hybrid:1.0`` to never over-commit parallel programs,
or ``none:0`` to apply Nova's ratios only.
""",
    ),
    cfg.StrOpt(
        'cost_table',
        help="""
File with what was measured of this cloud's hosts and uplinks, by which the
planner compares placements. Without it, the planner uses the figures of
HPCVirt'09 (Gigabit Ethernet, Xen).

Set it where hosts differ much from those, in particular with uplinks of
10 Gbit/s or more: make the file with ``nova-vhpc-bench network --calibrate
FILE``, copy it to every nova-scheduler, and try
``/etc/nova/vhpc-costs.json``. It is read when nova-scheduler starts, which
fails if the file is missing or wrong.
""",
    ),
    cfg.Opt(
        'switch_key',
        type=types.Name(),
        default='vhpc:switch',
        help="""
Aggregate metadata key whose value names the switch to which the aggregate's
hosts are connected. Change it if your aggregates already have such a key.
""",
    ),
    cfg.Opt(
        'rack_key',
        type=types.Name(),
        default='vhpc:rack',
        help="""
Aggregate metadata key whose value names the next larger part of the
fabric, such as a rack or a pod. Change it if your aggregates already have
such a key.
""",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register ``[vhpc_scheduler]`` on a ConfigOpts."""
    # By name: a group object would share overrides between ConfigOpts.
    conf.register_opts(OPTS, group=GROUP.name)


def check(conf: cfg.ConfigOpts) -> None:
    """Read every option of ``[vhpc_scheduler]`` once.

    oslo.config checks a value when it is first read. An invalid value must
    stop nova-scheduler when it starts, not at its first request.

    :raises cfg.Error: a value is wrong, or contradicts another; the message
        names the first such option.
    """
    for option in OPTS:
        conf[GROUP.name][option.dest]
    group = conf[GROUP.name]
    for name in ('switch_key', 'rack_key'):
        if not getattr(group, name).strip():
            raise _wrong(name, 'is empty: name a key of aggregate metadata')
    if group.switch_key == group.rack_key:
        raise _wrong(
            'rack_key',
            f'is {group.rack_key}, as is switch_key: give each a key of its '
            'own',
        )
    if group.snapshot_max_age < group.snapshot_ttl:
        raise _wrong(
            'snapshot_max_age',
            f'is {group.snapshot_max_age} s, less than snapshot_ttl '
            f'({group.snapshot_ttl} s): hosts would be rejected between two '
            'reads. Raise it, or lower snapshot_ttl',
        )


def _wrong(name: str, problem: str) -> cfg.Error:
    return cfg.ConfigFileValueError(f'[{GROUP.name}] {name} {problem}')


def list_opts() -> list[tuple[Any, list[Any]]]:
    """Return the group and its options, for sample file and reference."""
    return [(GROUP, OPTS)]
