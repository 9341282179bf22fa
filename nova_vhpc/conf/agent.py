# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Options of the compute-side agent: group ``[vhpc_agent]``."""

from typing import Any

from oslo_config import cfg

from nova_vhpc.conf import types

GROUP = cfg.OptGroup(
    'vhpc_agent',
    title='nova-vhpc agent',
    help='How nova-vhpc-agent finds, measures and controls the VMs of its '
    'host.',
)


def _integer(low: int, high: int = 1_000_000) -> types.Integer:
    return types.Integer(low, high)


def _seconds(low: float) -> types.Finite:
    return types.Finite(low, 86_400.0, 'seconds')


OPTS: list[Any] = [
    cfg.Opt(
        'libvirt_uri',
        type=types.LibvirtUri(),
        default='qemu:///system',
        help='libvirt connection. Change it only if nova-compute uses '
        'another one ([libvirt]connection_uri); both must see the same '
        'domains.',
    ),
    cfg.Opt(
        'host',
        type=types.Name(),
        help='Name of this compute host as Nova knows it ([DEFAULT]host of '
        'nova-compute). Set it if nova-compute sets its own. Unset, it is the '
        "machine's host name.",
    ),
    cfg.Opt(
        'state_path',
        type=types.AbsolutePath(),
        default='/var/lib/nova-vhpc',
        help='Directory of the journal, which holds the original settings of '
        'each VM. It must survive a crash of the agent: do not use a tmpfs '
        'that a restart of the service empties. Only root may be able to '
        'write there and in the directories above: otherwise no record is '
        'believed and no VM is written to.',
    ),
    cfg.Opt(
        'run_path',
        type=types.AbsolutePath(),
        default='/run/nova-vhpc',
        help='Directory of the lock and of the status socket. One per host; '
        'change it only for tests. Only root may be able to write there.',
    ),
    cfg.Opt(
        'cpu_shared_set',
        type=types.CpuSet(),
        help='Host CPUs to which VMs may be pinned, in the syntax of '
        "nova-compute's [compute]cpu_shared_set, such as '2-15,^8'. Set "
        'both options to the same value. Unset, all CPUs of the host that '
        'are online and not isolated (isolcpus). VMs are never pinned to '
        'other CPUs. The affinity of the agent itself, such as '
        "systemd's CPUAffinity=, does not matter.",
    ),
    cfg.Opt(
        'period_ms',
        type=_integer(30, 10_000),
        default=100,
        help='Length of the control period (tick) in milliseconds. The '
        'papers use 100 ms for I/O phases and 30 ms for time slices. A '
        'shorter period follows changes faster and costs more CPU time; '
        'try 100 first.',
    ),
    cfg.Opt(
        'reconcile_period',
        type=_seconds(0.2),
        default=10.0,
        mutable=True,
        help='Seconds between two comparisons of all VMs with what libvirt '
        'reports. It makes up for lost events; the agent acts on events at '
        'once. Raise it on hosts with hundreds of VMs, for example to 30.',
    ),
    cfg.StrOpt(
        'foreign_changes',
        default='respect',
        choices=[
            (
                'respect',
                'the whole server is handed back: its other values are '
                'restored, and it is not managed until it starts anew or '
                'nova-vhpc-ctl resumes it',
            ),
            ('override', "the agent's value is written again"),
        ],
        mutable=True,
        help='What to do after an external change: a value of a managed '
        'server was set by anything but the agent, for example with virsh '
        'schedinfo. Both are logged. Keep respect where operators or other '
        'tools tune servers by hand; set override if only the agent may '
        'decide.',
    ),
    cfg.StrOpt(
        'window_weights',
        default='cgroup',
        choices=[
            ('cgroup', "to the file of the VM's control group"),
            ('libvirt', 'by a libvirt call at each border of a window'),
        ],
        help='How the weights of gang windows are written. Writing the file '
        'takes a tenth of a millisecond; libvirt takes several, more on a '
        'busy host, and makes systemd write a file each time. libvirt is also '
        'used if the file cannot be written or libvirt reads another value. '
        'Set libvirt if only libvirt and systemd may write below '
        '/sys/fs/cgroup/machine.slice on your hosts. One write of the agent '
        'to that file remains: it restores the original weight of a VM whose '
        'migration begins in its window, because libvirt accepts no weight '
        'until the migration ends. ProtectControlGroups=yes in the '
        "agent's unit forbids that as well.",
    ),
    cfg.BoolOpt(
        'dry_run',
        default=False,
        help='Decide and show, but write nothing: not to VMs, NICs, the '
        'journal or Placement; and send no phases to other hosts. VMs that a '
        'crash left changed are logged and stay so until '
        'nova-vhpc-agent --restore. Recommended as the first step on a new '
        'host; the same as --dry-run.',
    ),
    cfg.ListOpt(
        'sync_probes',
        default=['schedstat', 'cpu_stat'],
        help='Probes of the synchronisation latency, in order of '
        'preference. If the host cannot serve a probe, the agent logs why at '
        'start and uses the next. Change it to leave out a faulty probe.',
    ),
    cfg.Opt(
        'other_sync_ticks',
        type=_integer(1, 100),
        default=5,
        help='Control periods between two readings of values that no time '
        'slice depends on: the synchronisation latency of VMs that are not '
        'parallel, and the I/O events of all VMs unless pinning_policy is '
        'io_pool, slice_policy is dss, or either is a plugin. They are shown '
        'in the status, and gang windows use them to estimate the CPU demand '
        'of such VMs. Set 1 to read them in every period, at up to twice the '
        'cost.',
    ),
    cfg.ListOpt(
        'io_probes',
        default=['tap', 'block'],
        help='Probes of I/O events. The events of all probes that the host '
        'can serve are added up. Leave out block if disk traffic should not '
        'count as I/O phase.',
    ),
    cfg.ListOpt(
        'actuators',
        default=['libvirt'],
        help='Actuator that writes the settings: libvirt writes period, '
        'quota, shares and pins. Name another one only if you have installed '
        'a plugin for it.',
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
        help='Number of failed writes in a row after which the agent does '
        'not write to a VM for quarantine_seconds. Raise it if libvirt calls '
        'often fail and succeed soon after; try 5.',
    ),
    cfg.Opt(
        'quarantine_seconds',
        type=_seconds(0.1),
        default=30.0,
        mutable=True,
        help='Seconds for which the agent does not write to a VM in '
        'quarantine before it tries again. The time doubles with each further '
        'failure, to at most ten times this value. Lower it, for example to '
        '10, if such VMs mostly recover soon.',
    ),
    cfg.Opt(
        'reconnect_max_seconds',
        type=_seconds(0.1),
        default=30.0,
        help='Longest pause in seconds between two attempts to connect to '
        'libvirt. Lower it, for example to 5, if libvirtd restarts often.',
    ),
    cfg.HostAddressOpt(
        'metrics_host',
        default='127.0.0.1',
        help='Address on which the Prometheus endpoint listens. Keep it on '
        'the loopback if Prometheus runs on this host or comes by a proxy. '
        'Otherwise set an address in the management network, such as '
        '10.2.0.17, and metrics_cert_file and metrics_client_ca_file as well: '
        'the metrics name servers and projects.',
    ),
    cfg.Opt(
        'metrics_port',
        type=types.Port(),
        default=9619,
        help='TCP port of the Prometheus endpoint; 0 turns it off. Change it, '
        'for example to 9620, if another program uses the port: meanwhile the '
        'agent runs without metrics, and says so.',
    ),
    cfg.Opt(
        'metrics_cert_file',
        type=types.AbsolutePath(),
        help='PEM file with the certificate of the Prometheus endpoint, and '
        'those between it and the root. The endpoint then speaks HTTPS only. '
        'A renewed file is used within a second. Try '
        '/etc/nova-vhpc/metrics.crt.',
    ),
    cfg.Opt(
        'metrics_key_file',
        type=types.AbsolutePath(),
        help='PEM file with the key of metrics_cert_file, without a '
        'passphrase. Only root should be able to read it. Unset, the key is '
        'in metrics_cert_file. Try /etc/nova-vhpc/metrics.key.',
    ),
    cfg.Opt(
        'metrics_client_ca_file',
        type=types.AbsolutePath(),
        help='PEM file with the authority that signs the certificates of '
        'scrapers (tls_config in the configuration of Prometheus). Unset, '
        'anybody who reaches the endpoint may read the metrics. Set it, with '
        'metrics_cert_file, if metrics_host is not the loopback. Try '
        '/etc/nova-vhpc/prometheus-ca.crt.',
    ),
    cfg.StrOpt(
        'status_socket_mode',
        default='0660',
        regex='^0?[0-7]{3}$',
        help='Octal file mode of the status socket in run_path. The socket '
        "belongs to the agent's own group and is created at each start. To "
        'let other users than root run nova-vhpc-top, set Group= in the '
        "agent's unit to their group.",
    ),
    cfg.BoolOpt(
        'bind_uplinks',
        default=False,
        help='Make the claims of servers on uplinks decide which uplink their '
        'packets take, by the binders below. Turn it on where virtual '
        'clusters with a network configuration run on tenant networks of '
        'OVN, and the host has an encap IP on each uplink; the agent names '
        'each server whose claim it cannot fulfil, and why. What was changed '
        'is restored when the agent stops.',
    ),
    cfg.ListOpt(
        'binders',
        default=['bond_entry', 'encap_ip'],
        help='Binders that bind_uplinks uses, in order of preference; the '
        "first that serves a guest's NICs and claims is used. bond_entry "
        'makes frames leave by the claimed member of an Open vSwitch bond '
        'with bond_mode=balance-slb and bond-rebalance-interval=0, for '
        'provider networks. encap_ip sets '
        'external_ids:encap-ip of ports of Open vSwitch, for tenant networks '
        'of OVN 24.03 or newer. Leave out what must not be used on your '
        'hosts; others can be installed as plugins.',
    ),
    cfg.Opt(
        'ovs_run_dir',
        type=types.AbsolutePath(needed=False),
        default='',
        help='Directory with ovs-vswitchd.pid and the control socket of '
        'ovs-vswitchd, which the binder bond_entry connects to: as the user '
        'that ovs-vswitchd runs as, or as root with CAP_DAC_OVERRIDE. If '
        'empty, it is the directory of the socket in [vhpc_topology] '
        'ovsdb_connection, or /run/openvswitch if that is no local socket. '
        "Set it if the agent runs in a container that has the host's "
        'directory elsewhere, for example to /host/run/openvswitch.',
    ),
    cfg.Opt(
        'cgroup_root',
        type=types.AbsolutePath(),
        default='/sys/fs/cgroup',
        help='Directory where the cgroup file systems are mounted. Change it '
        'only in tests and containers, for example to /host/sys/fs/cgroup.',
    ),
    cfg.Opt(
        'proc_root',
        type=types.AbsolutePath(),
        default='/proc',
        help='Directory where the proc file system is mounted. Change it '
        "only if the agent runs in a container that has the host's elsewhere, "
        'for example to /host/proc.',
    ),
    cfg.Opt(
        'sys_root',
        type=types.AbsolutePath(),
        default='/sys',
        help='Directory where sysfs is mounted. Change it only in tests and '
        'containers, for example to /host/sys.',
    ),
]

ROOTS = [option for option in OPTS if option.name.endswith('_root')]
"""Options of where the kernel's file systems are mounted."""


def register_opts(conf: Any) -> None:
    """Register the group on a ``ConfigOpts``."""
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts() -> list[tuple[Any, list[Any]]]:
    """Return the group and its options, for the sample file."""
    return [(GROUP, OPTS)]
