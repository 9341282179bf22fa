# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""``[vhpc_topology]``: which bridges and uplinks the agent publishes."""

from typing import Any

from oslo_config import cfg

from nova_vhpc.conf import types

GROUP = 'vhpc_topology'

DEFAULT_OVSDB = 'unix:/run/openvswitch/db.sock'

opts = [
    cfg.BoolOpt(
        'publish',
        default=True,
        help="""
Publish this host's bridges and uplinks to Placement.

Turn it off on hosts whose uplinks no server may claim, or if only the control
of time slices is wanted. To remove what was published before, stop the agent
and run ``nova-vhpc-agent --withdraw``.
""",
    ),
    cfg.Opt(
        'node',
        type=types.Name(),
        help="""
Name of this host's compute node, the name of its root resource provider.

Set it only if the agent cannot find the provider: the agent reads the uuid
from ``compute_id_file`` first, then looks for a provider with the name of its
host, then with the fully qualified name of the machine. Suggested value: the
name that ``openstack hypervisor list`` shows for this host.
""",
    ),
    cfg.Opt(
        'compute_id_file',
        type=types.AbsolutePath(needed=False),
        default='/var/lib/nova/compute_id',
        help="""
File in which nova-compute keeps the uuid of its compute node.

Change it if nova-compute's ``state_path`` is not ``/var/lib/nova``. It is not
used if ``node`` is set or the file does not exist.
""",
    ),
    cfg.Opt(
        'bridges',
        type=types.BridgeRules(),
        default=[],
        help="""
Which bridges guests may use, and how.

A list of ``NAME[:KIND][:KEY=VALUE]...``. NAME may contain wildcards
(``*``, ``?``, ``[...]``). KIND is ``shared`` (the default: several guests on
the bridge) or ``separate`` (bridge and uplink belong to one guest). KEY is
``slots`` (guests that may claim an uplink of a shared bridge), ``physnet``
(the Neutron physical network, instead of those that Neutron has mapped to the
bridge), ``mbps`` (link speed, instead of the driver's: that of veth pairs
reports 10000) or ``nic`` (an uplink that the agent does not find by itself;
may be repeated; on Open vSwitch, those it finds do not count then). A NIC in
no bridge that has an IP address of ``ovn-encap-ip`` is its own bridge here:
give its name. The first entry that matches a bridge counts, and bridges that
match no entry are not published.

When empty, everything that guests can reach is published as shared: Linux
bridges with a physical uplink, bridges of Open vSwitch that Neutron has mapped
to a physical network, and uplinks on which OVN's tunnels end. Suggested value
with one general and two reserved bridges:
``br-ex:shared:slots=16,br-hpc*:separate``.
""",
    ),
    cfg.Opt(
        'ovsdb_connection',
        type=types.OvsdbConnection(),
        default=DEFAULT_OVSDB,
        help="""
Where the database of this host's Open vSwitch is: ``unix:PATH`` or
``tcp:ADDRESS:PORT``.

From it the agent learns which bridges are mapped to which physical networks
(with OVN), their uplinks and bonds, DPDK ports, and which uplink each IP
address of ``ovn-encap-ip`` is on. The default is right if nova-compute and
Open vSwitch come from the distribution; on a host without Open vSwitch it does
no harm. Change it if ovsdb-server listens elsewhere (try
``tcp:127.0.0.1:6640``, os-vif's default, if the agent may not open the
socket), and leave it empty to use bridges of Open vSwitch by ``bridges`` and
``nic`` only.
""",
    ),
    cfg.ListOpt(
        'ml2_config_files',
        item_type=types.AbsolutePath(),
        default=['/etc/neutron/plugins/ml2/openvswitch_agent.ini'],
        help="""
Configuration files of Neutron's Open vSwitch agent on this host.

On hosts without OVN, its ``[ovs] bridge_mappings`` say which bridges of Open
vSwitch are mapped to which physical networks. Files that do not exist are left
out, and what a later one says counts. Change it if the agent is started with
other files (see ``--config-file`` of its process), for example in containers
to ``/etc/neutron/plugins/ml2/ml2_conf.ini``.
""",
    ),
    cfg.ListOpt(
        'nic_patterns',
        default=[],
        help="""
Names of bridge ports that count as uplinks without being physical NICs.

A NIC is physical if the kernel has a device for it; a bond or VLAN on top of
one counts as well. Set this if uplinks are virtual, as on a nested host or in
a lab, for example to ``veth-up*``. Wildcards are allowed.
""",
    ),
    cfg.Opt(
        'shared_slots',
        type=types.Integer(min=1, max=10_000_000),
        default=32,
        help="""
Number of guests that may claim one uplink of a shared bridge if ``bridges``
does not set ``slots``.

Lower it if members that share an uplink slow each other down; raise it if
hosts with free CPUs are rejected because no uplink slot is free. Suggested
value: the number of two-CPU guests that fill the host.
""",
    ),
    cfg.Opt(
        'default_mbps',
        type=types.Integer(min=1, max=10_000_000),
        default=1000,
        help="""
Link speed in Mbit/s of an uplink whose driver does not report it.

Virtual NICs and some drivers report -1. Set it to the least speed of such
uplinks in this cloud, because flavors with ``vhpc:min_link_mbps`` rely on it.
""",
    ),
    cfg.Opt(
        'poll_interval',
        type=types.Integer(min=1, max=3600),
        default=5,
        help="""
Seconds between two checks of the bridges.

A check takes about a millisecond and writes nothing unless something changed.
Raise it (try 30) on hosts whose network never changes; new members may still
claim a dead link for that long.
""",
    ),
    cfg.Opt(
        'verify_interval',
        type=types.Integer(10, types.MOST_SECONDS),
        default=300,
        help="""
Seconds after which the published uplinks are compared with Placement again.

This corrects what others changed or deleted in Placement. It costs two reads
per uplink; raise it (try 1800) in clouds of many thousand hosts.
""",
    ),
    cfg.Opt(
        'stamp_interval',
        type=types.Integer(0, types.MOST_SECONDS),
        default=300,
        help="""
Seconds after which the time of the last publication is written again.

By it, schedulers recognise stale topology: it must be well below their
``[vhpc_scheduler] topology_max_age``. Each renewal costs Placement one read
and one write; with 10,000 hosts and 300 seconds that is 33 of each per second.
Raise it in such clouds. With 0 it is written only if something changed; then
set ``topology_max_age`` to 0 as well, or all hosts become stale.
""",
    ),
    cfg.Opt(
        'sysfs',
        type=types.AbsolutePath(),
        default='/sys',
        advanced=True,
        help="""
Directory where sysfs is mounted. Change it only in tests and containers, for
example to ``/host/sys``.
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
