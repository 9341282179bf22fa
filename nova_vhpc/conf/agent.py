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

"""Options of the compute-side agent: group ``[vhpc_agent]``."""

from typing import Any

from oslo_config import cfg

from nova_vhpc.conf import types

GROUP = cfg.OptGroup(
    'vhpc_agent',
    title='nova-vhpc agent',
    help='How nova-vhpc-agent finds, measures and sets the VMs of its host.',
)


ABSOLUTE = '^/'
"""Regex of an absolute path. An agent started in another directory would not
find lock and journal of the first one, and --restore not the journal."""


def _integer(low: int, high: int = 1_000_000) -> types.Integer:
    return types.Integer(low, high)


def _seconds(low: float) -> types.Finite:
    return types.Finite(low, 86_400.0, 'seconds')


OPTS: list[Any] = [
    cfg.StrOpt(
        'libvirt_uri',
        default='qemu:///system',
        help='libvirt connection. Change it only if nova-compute uses '
        'another one ([libvirt]connection_uri); both must see the same '
        'domains.',
    ),
    cfg.StrOpt(
        'host',
        help='Name of this compute host as Nova knows it ([DEFAULT]host of '
        "nova-compute). Leave unset unless nova-compute's own is set; the "
        "default is the machine's host name.",
    ),
    cfg.StrOpt(
        'state_path',
        default='/var/lib/nova-vhpc',
        regex=ABSOLUTE,
        help="Directory of the journal: each VM's settings before we first "
        'wrote to it. It must survive a crash of the agent, so no tmpfs '
        'that a restart of the service empties; /var/lib/nova-vhpc is good.',
    ),
    cfg.StrOpt(
        'run_path',
        default='/run/nova-vhpc',
        regex=ABSOLUTE,
        help='Directory of the lock and of the status socket. One per host; '
        'change it only for tests.',
    ),
    cfg.StrOpt(
        'cpu_shared_set',
        help='Host CPUs that VMs may be pinned to, in the syntax of '
        "nova-compute's [compute]cpu_shared_set, such as '2-15,^8'. Give "
        'both the same value; without it, all CPUs that the agent itself '
        'may use. VMs are never pinned outside of it.',
    ),
    cfg.Opt(
        'period_ms',
        type=_integer(30, 10_000),
        default=100,
        help='Length of the control period (tick). The papers use 100 ms '
        'for I/O phases and 30 ms for time slices. Shorter follows faster '
        'and costs more CPU; try 100 first.',
    ),
    cfg.Opt(
        'reconcile_period',
        type=_seconds(0.2),
        default=10.0,
        mutable=True,
        help='Seconds between two full comparisons of what libvirt says with '
        'what we know. Events make us follow at once; this is the safety '
        'net. Raise it on hosts with hundreds of VMs, for example to 30.',
    ),
    cfg.StrOpt(
        'foreign_changes',
        default='respect',
        choices=[
            ('respect', 'the value is theirs from now on'),
            ('override', 'our value is written again'),
        ],
        mutable=True,
        help='What to do when somebody else changes a value that we manage, '
        'for example with virsh schedinfo. Both are logged. Respect is '
        'right where people still tune by hand.',
    ),
    cfg.StrOpt(
        'window_weights',
        default='cgroup',
        choices=[
            ('cgroup', "into the file of the VM's control group"),
            ('libvirt', 'by libvirt, for each border of a window'),
        ],
        help='How the weights of gang windows are written. The file takes a '
        'tenth of a millisecond, libvirt several, more on a busy host, and it '
        'has systemd write a file each time. Where the file cannot be '
        'written, or libvirt does not read the same, libvirt is used. Set '
        'libvirt if nobody but libvirt and systemd is to write below '
        '/sys/fs/cgroup/machine.slice on your hosts. Even so the original '
        'weight of a VM whose migration begins in its window is put there, as '
        'libvirt takes none until it ends; ProtectControlGroups=yes in the '
        "agent's unit forbids that as well.",
    ),
    cfg.BoolOpt(
        'dry_run',
        default=False,
        help='Decide and show, but write nothing: to no VM and no NIC, to '
        'no journal, and nothing to Placement; and tell other hosts no '
        'phase. What a crash left in VMs is named and stays, until '
        'nova-vhpc-agent --restore. The advised first step on a new host; '
        'the same as --dry-run.',
    ),
    cfg.ListOpt(
        'sync_probes',
        default=['schedstat', 'cpu_stat', 'kvm', 'libvirt_delay'],
        help='Probes of the synchronisation latency, in order of '
        'preference; one that this host cannot serve says so at start and '
        'the next is used. Change it to leave out a probe that misbehaves.',
    ),
    cfg.Opt(
        'other_sync_ticks',
        type=_integer(1, 100),
        default=5,
        help='Control periods between two readings of what no slice '
        'follows: the synchronisation latency of VMs that are not parallel, '
        'and the I/O events of all VMs unless pinning_policy is io_pool, '
        'slice_policy is dss, or either is a plugin. Both are shown, and '
        'tell windows how much CPU such VMs want. Set 1 to watch them as '
        'closely, at up to twice the cost.',
    ),
    cfg.ListOpt(
        'io_probes',
        default=['tap', 'block'],
        help='Probes of I/O events; all that the host serves are added up. '
        'Leave out block if disk traffic should not count as I/O phase.',
    ),
    cfg.ListOpt(
        'actuators',
        default=['libvirt'],
        help='What writes the settings: libvirt for period, quota, shares '
        'and pins; add kernel_slice for per-thread slices on kernels from '
        '6.12, after measuring that it helps.',
    ),
    cfg.Opt(
        'call_deadline',
        type=_seconds(0.1),
        default=5.0,
        mutable=True,
        help='Seconds that one libvirt call on a VM may take before the VM '
        'is put in quarantine. Raise it on hosts where libvirt is slow.',
    ),
    cfg.Opt(
        'workers',
        type=_integer(1, 16),
        default=4,
        help='Threads that call libvirt. libvirtd serves at most '
        'max_client_requests (5) calls of one client at a time, so more '
        'than 4 seldom help.',
    ),
    cfg.Opt(
        'quarantine_failures',
        type=_integer(1),
        default=3,
        mutable=True,
        help='Failed writes in a row after which a VM is left alone for '
        'quarantine_seconds.',
    ),
    cfg.Opt(
        'quarantine_seconds',
        type=_seconds(0.1),
        default=30.0,
        mutable=True,
        help='How long a VM in quarantine is left alone before the next '
        'try. Doubles with each further failure, up to ten times.',
    ),
    cfg.Opt(
        'reconnect_max_seconds',
        type=_seconds(0.1),
        default=30.0,
        help='Longest pause between two tries to reach libvirt.',
    ),
    cfg.HostAddressOpt(
        'metrics_host',
        default='127.0.0.1',
        help='Address of the Prometheus endpoint. It has no authentication: '
        'keep it on the loopback or on a management network.',
    ),
    cfg.Opt(
        'metrics_port',
        type=types.Port(),
        default=9619,
        help='Port of the Prometheus endpoint; 0 switches it off.',
    ),
    cfg.StrOpt(
        'status_socket_mode',
        default='0660',
        regex='^0?[0-7]{3}$',
        help='File mode of the status socket in run_path, octal. Its group '
        "is the agent's own, and it is made anew at each start: to let others "
        'than root run nova-vhpc-top, name their group by Group= in the '
        "agent's unit.",
    ),
    cfg.BoolOpt(
        'bind_uplinks',
        default=False,
        help='Plug the NICs of servers that have claimed uplinks into the '
        "uplinks' bridges, whatever network they were booted on. Turn it on "
        'where guests are on Linux bridges and a claim shall decide where '
        'packets go; os-vif and Neutron do not know of it, so the bridges '
        'must reach the same networks. Undone when the agent stops.',
    ),
    cfg.StrOpt(
        'cgroup_root',
        default='/sys/fs/cgroup',
        help='Where the cgroup file systems are mounted. Change it only for '
        'tests and containers.',
    ),
    cfg.StrOpt(
        'proc_root',
        default='/proc',
        help='Where the proc file system is mounted. Change it only when '
        "the agent runs in a container with the host's one elsewhere.",
    ),
    cfg.StrOpt(
        'sys_root',
        default='/sys',
        help='Where sysfs is mounted. Change it only for tests and '
        'containers.',
    ),
]


def register_opts(conf: Any) -> None:
    """Register the group on a ``ConfigOpts``."""
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts() -> list[tuple[Any, list[Any]]]:
    """Return the group and its options, for the sample file."""
    return [(GROUP, OPTS)]
