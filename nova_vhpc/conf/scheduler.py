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
How strongly VirtualClusterWeigher weighs against Nova's other weighers.

A host that the plan wants weighs at least 0.4 more than any other, so 20
outweighs eight of Nova's own weighers at their default of 1.0. Lower it
(try 2.0) to let free RAM or CPUs matter more than the plan; 0.0 plans
nothing, and leaves the order of hosts to Nova's weighers. The aggregate
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

Only matters with ``unknown_topology = allow``. Hosts that are known weigh
from 0.0 to 1.0; the default keeps unknown ones for the last. Raise it to
0.0 while agents are being rolled out over a cloud.
""",
    ),
    cfg.StrOpt(
        'unknown_topology',
        default='reject',
        choices=[
            ('reject', 'Such a host takes no member that needs an uplink.'),
            ('allow', 'It is taken when nothing better is left.'),
        ],
        help="""
What becomes of a host whose agent has published nothing, or nothing newer
than ``topology_max_age``.

Change to ``allow`` while agents are being rolled out. Requests that name
no network configuration and no link speed never ask for topology.
""",
    ),
    cfg.Opt(
        'topology_max_age',
        type=types.Integer(min=0),
        default=1200,
        help="""
Seconds after which what an agent published counts as stale; 0 for never.

Set it to three or four times the agents' own
``[vhpc_topology] stamp_interval`` (300 by default), so that one lost
write does not take a host out.
""",
    ),
    cfg.Opt(
        'snapshot_ttl',
        type=types.Integer(min=1),
        default=30,
        help="""
Seconds between two bulk reads of all uplinks from Placement, in every
scheduler worker that has seen a request for a virtual cluster.

A stale snapshot costs no correctness, since the claim itself is made in
Placement, but a cluster that is planned with it may be spread further than
it need be. Raise it (try 120) when Placement serves more than 5,000 hosts.
""",
    ),
    cfg.Opt(
        'snapshot_max_age',
        type=types.Integer(min=1),
        default=600,
        help="""
Seconds for which the last snapshot is still used when Placement does not
answer. After that, hosts are rejected for requests that need topology,
with a reason that says so.
""",
    ),
    cfg.Opt(
        'refresh_timeout',
        type=types.Integer(min=1),
        default=60,
        help="""
Seconds that one bulk read may take before it is given up and started
anew. At 10,000 hosts with four uplinks a read takes several seconds.
""",
    ),
    cfg.Opt(
        'first_read_timeout',
        type=types.Finite(min=0.1),
        default=15.0,
        help="""
Seconds that a worker's requests wait for its first bulk read, counted from
the first of them. Later ones do not wait for it, even if it hangs; after a
pause they may wait for another one, as ``fresh_read_timeout`` says. Keep it
below Nova's RPC timeout (60).
""",
    ),
    cfg.Opt(
        'claim_attempts',
        type=types.Integer(min=0),
        default=512,
        help="""
Most additional claims that one member may try, on uplinks of hosts that
were already tried once, when other schedulers win the race for an uplink.

Nova alone tries one uplink per host. With 0, a boot can fail although
uplinks are free. Raise it when more than 500 members are booted at once.
""",
    ),
    cfg.Opt(
        'fresh_read_timeout',
        type=types.Finite(min=0),
        default=0.5,
        help="""
Most seconds that a request waits for a bulk read after a pause, so that its
members are planned with what is free now. A worker that nobody asks reads
less often, and its last snapshot may be ``snapshot_max_age`` / 2 old. No
request waits while it is not older than twice ``snapshot_ttl``, or where the
last read took longer than this.

A read takes about 0.2 s at 1,000 hosts. Raise it (try 5.0) on larger clouds
where boots are few; with 0 no request waits but a worker's first one.
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
Most vCPUs per host CPU for flavors without ``vhpc:max_overcommit``, by
``vhpc:paradigm``. A paradigm that is not named has no limit but Nova's; any
other name, and what is no number > 0, keeps nova-scheduler from starting.

There is no loss while vCPUs do not outnumber CPUs; beyond, OpenMP and
hybrid codes lose steeply (NPC'09, section 4.2). Set
``mpi:1.0,openmp:1.0,hybrid:1.0`` to never over-commit parallel programs,
or ``none:0`` to leave it all to Nova's ratios.
""",
    ),
    cfg.StrOpt(
        'switch_key',
        default='vhpc:switch',
        help="""
Aggregate metadata key whose value names the switch that the aggregate's
hosts hang on. Change it when your aggregates already carry such a key.
""",
    ),
    cfg.StrOpt(
        'rack_key',
        default='vhpc:rack',
        help="""
Aggregate metadata key whose value names the next larger part of the
fabric, such as a rack or a pod. See ``switch_key``.
""",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register ``[vhpc_scheduler]`` on a ConfigOpts."""
    # By name: a group object would share overrides between ConfigOpts.
    conf.register_opts(OPTS, group=GROUP.name)


def check(conf: cfg.ConfigOpts) -> None:
    """Read every option of ``[vhpc_scheduler]`` once.

    oslo.config checks a value when it is first read. A wrong value is to
    stop nova-scheduler when it starts, not at its first request.

    :raises cfg.Error: a value is wrong; the message names the first such
        option.
    """
    for option in OPTS:
        conf[GROUP.name][option.dest]


def list_opts() -> list[tuple[Any, list[Any]]]:
    """Return the group and its options, for sample file and reference."""
    return [(GROUP, OPTS)]
