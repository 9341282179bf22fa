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


"""``[vhpc_topology]``: which bridges and uplinks the agent publishes."""

from typing import Any

from oslo_config import cfg

from nova_vhpc.conf import types

GROUP = 'vhpc_topology'

opts = [
    cfg.BoolOpt(
        'publish',
        default=True,
        help="""
Publish this host's bridges and uplinks to Placement.

Turn it off on hosts whose uplinks nobody may claim, or when nothing but
the time slice control is wanted. With the agent stopped,
``nova-vhpc-agent --withdraw`` takes away what was published before.
""",
    ),
    cfg.StrOpt(
        'node',
        help="""
Name of this host's compute node, the name of its root resource provider.

Needed only where the agent cannot find it by itself: it reads the uuid
from ``compute_id_file`` first, then looks for a provider named as the
agent's host, then as the fully qualified name of the machine. Suggested
value: what ``openstack hypervisor list`` shows for this host.
""",
    ),
    cfg.StrOpt(
        'compute_id_file',
        default='/var/lib/nova/compute_id',
        help="""
File in which nova-compute keeps the uuid of its compute node.

Change it when nova-compute's ``state_path`` is not ``/var/lib/nova``. Not
used when ``node`` is set or the file does not exist.
""",
    ),
    cfg.ListOpt(
        'bridges',
        default=[],
        help="""
Which bridges guests may use, and how.

A list of ``NAME[:KIND][:KEY=VALUE]...``. NAME may hold the wildcards of
fnmatch. KIND is ``shared`` (the default: several guests on the bridge) or
``separate`` (bridge and uplink belong to one guest). KEY is ``slots``
(guests that may claim an uplink of a shared bridge), ``physnet`` (the
Neutron physical network), ``mbps`` (link speed, instead of what the
driver tells: veth pairs claim 10000) or ``nic`` (the uplink's name where
it cannot be found in sysfs, as on Open vSwitch bridges; may be repeated).
The first entry that matches a bridge counts, and bridges that no entry
matches are not published.

When empty, every Linux bridge with a physical uplink is published as
shared. Suggested value with one general and two reserved bridges:
``br-ex:shared:slots=16:physnet=public,br-hpc*:separate:physnet=fabric``.
""",
    ),
    cfg.ListOpt(
        'nic_patterns',
        default=[],
        help="""
Names of bridge ports that count as uplinks without being physical NICs.

A NIC is physical when the kernel knows a device for it, and a bond or
VLAN on top of one counts as well. Set this where uplinks are virtual: on
a nested host or in a lab, for instance ``veth-up*``. Wildcards of fnmatch.
""",
    ),
    cfg.Opt(
        'shared_slots',
        type=types.Integer(min=1, max=10_000_000),
        default=32,
        help="""
Guests that may claim one uplink of a shared bridge without ``slots``.

Lower it when members that share an uplink hold each other up; raise it
when hosts with free CPUs are refused for lack of uplink slots. Suggested
value: the number of two-CPU guests that fill the host.
""",
    ),
    cfg.Opt(
        'default_mbps',
        type=types.Integer(min=1, max=10_000_000),
        default=1000,
        help="""
Link speed in Mbit/s of an uplink whose driver does not tell it.

Virtual NICs and some drivers report -1. Set it to the least speed that
such uplinks have in this cloud: flavors with ``vhpc:min_link_mbps`` rely
on it.
""",
    ),
    cfg.Opt(
        'poll_interval',
        type=types.Integer(min=1, max=3600),
        default=5,
        help="""
Seconds between two looks at the bridges.

A look costs about a millisecond and writes nothing unless something
changed. Raise it on hosts whose network never changes; a dead link is
withheld from new members no sooner than this.
""",
    ),
    cfg.Opt(
        'verify_interval',
        type=types.Integer(min=10),
        default=300,
        help="""
Seconds after which what stands in Placement is compared again.

Heals what somebody else changed or deleted there. Costs two reads per
uplink; raise it in clouds of many thousand hosts.
""",
    ),
    cfg.Opt(
        'stamp_interval',
        type=types.Integer(min=0),
        default=300,
        help="""
Seconds after which the time of the last publication is written again.

Schedulers tell by it that a host's topology is stale. Must be well below
their limit of age. Each renewal is one read and one write of Placement;
with 10,000 hosts and 300 seconds that makes 33 of each per second. 0
writes it only when something changed; schedulers then need
``[vhpc_scheduler] topology_max_age = 0``, or hosts grow stale for them.
""",
    ),
    cfg.StrOpt(
        'sysfs',
        default='/sys',
        advanced=True,
        help="""
Where sysfs is mounted. Change it in tests and containers only, for
instance to ``/host/sys``.
""",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the group on ``conf``."""
    # By name: an OptGroup object would share overrides between ConfigOpts.
    conf.register_opts(opts, group=GROUP)


def list_opts() -> list[tuple[Any, list[Any]]]:
    """Return the group and its options, for the sample file."""
    return [(GROUP, opts)]
