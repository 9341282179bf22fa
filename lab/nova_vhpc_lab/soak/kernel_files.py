# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Damaged files of the kernel: /proc, sysfs and control groups."""

import contextlib
import functools
import os
import pathlib
import random
import tempfile
from collections.abc import Mapping

from nova_vhpc.agent import host_cpus
from nova_vhpc.agent.probes import base, block, cpu_stat, schedstat, tap
from nova_vhpc.linux import cgroup, cpus, qemu_process
from nova_vhpc.topology import discovery
from nova_vhpc_lab.soak import damage

PID = 5
GROUP = 'machine/qemu-1-x'
PROCESS = {
    'proc/5/stat': '5 (qemu) S ' + '0 ' * 18 + '777 0 0\n',
    'proc/5/cgroup': f'3:cpu,cpuacct:/{GROUP}/emulator\n'
    f'2:cpuset:/{GROUP}/emulator\n1:blkio:/{GROUP}\n0::/{GROUP}\n',
    'proc/5/cmdline': '/usr/bin/qemu\0-uuid\0u-1\0',
    'proc/5/task/6/comm': 'CPU 0/KVM\n',
    'proc/5/task/7/comm': 'CPU 1/KVM\n',
    'proc/5/task/6/cgroup': f'3:cpu,cpuacct:/{GROUP}/vcpu0\n',
    'proc/sys/kernel/random/boot_id': 'boot\n',
    f'cgroup/cpu/{GROUP}/vcpu0/tasks': '6\n',
    f'cgroup/cpu/{GROUP}/vcpu1/tasks': '7\n',
    f'cgroup/cpu/{GROUP}/cpu.shares': '1024\n',
    f'cgroup/cpuset/{GROUP}/cpuset.cpus': '0-1\n',
    f'cgroup/blkio/{GROUP}/blkio.throttle.io_serviced': '8:0 Read 1\n',
    f'cgroup/{GROUP}/cgroup.controllers': 'cpuset cpu io\n',
    f'cgroup/{GROUP}/cpuset.cpus': '0-1\n',
    'cgroup/machine/cpuset.cpus': '0-3\n',
    'cgroup/unified/cgroup.controllers': 'cpu io\n',
}
COUNTERS = {
    'proc/5/task/6/schedstat': '123456 7890 12\n',
    'proc/5/task/6/stat': '6 (CPU 0/KVM) R 1 ' + '0 ' * 9 + '12 13 0 0\n',
    'proc/5/io': 'rchar: 1\nread_bytes: 9\nwrite_bytes: 4\n',
    'group/io.stat': '8:0 rbytes=1 wbytes=2 rios=3 wios=4\n',
    'group/cpu.stat': 'nr_periods 1\nthrottled_usec 99\n',
    'net/class/net/tap0/statistics/rx_packets': '9\n',
    'net/class/net/tap0/statistics/tx_packets': '55\n',
}
CPU = 'devices/system/cpu/'
LISTS = {
    CPU + 'online': '0-3\n',
    CPU + 'present': '0-7\n',
    CPU + 'isolated': '3\n',
    CPU + 'nohz_full': '(null)\n',
    CPU + 'cpu0/topology/physical_package_id': '0\n',
    CPU + 'cpu0/topology/package_cpus_list': '0-3\n',
    CPU + 'cpu0/topology/core_cpus_list': '0-1\n',
    CPU + 'cpu0/cache/index3/level': '3\n',
    CPU + 'cpu0/cache/index3/shared_cpu_list': '0-3\n',
    'cpuset.cpus.isolated': '2\n',
}
NICS = {
    'class/net/br0/bridge/stp_state': '0\n',
    'class/net/br0/flags': '0x1003\n',
    'class/net/br0/brif/eth0/port_no': '0x1\n',
    'class/net/eth0/carrier': '1\n',
    'class/net/eth0/operstate': 'up\n',
    'class/net/eth0/speed': '1000\n',
    'class/net/eth0/uevent': 'INTERFACE=eth0\n',
    'class/net/eth0/device/sriov_numvfs': '0\n',
}


def processes(rng: random.Random) -> None:
    """Find a domain's process, its threads and its control groups."""
    root = _directory('processes')
    _write(rng, root, PROCESS)
    found = qemu_process.Processes(str(root / 'proc'), str(root / 'cgroup'))
    found.identity('u-1', 1)
    found.vcpu_threads(PID, (0, 1))
    found.vcpu_cgroups(PID, (0, 1))
    found.weight_file(PID, 6)
    found.block_cgroup(PID)
    found.cpuset(PID)
    found.confined_to(PID)
    cgroup.controllers(root / 'cgroup')
    cgroup.cpu_is_v2(root / 'cgroup')


def probes(rng: random.Random) -> None:
    """Read a guest's counters three times, as the tick does."""
    root = _directory('probes')
    _write(rng, root, COUNTERS)
    host = base.Host(str(root / 'proc'), str(root / 'net'), str(root))
    group = root / 'group'
    target = base.Target('u', 'n', PID, (6,), (group,), group, ('tap0',))
    made = [
        kind(host).attach(target)
        for kind in (
            *(schedstat.SchedstatProbe, cpu_stat.CpuStatProbe),
            *(block.BlockProbe, tap.TapProbe),
        )
    ]
    readers = [reader for reader in made if reader is not None]
    try:
        for _ in range(3):
            for reader in readers:
                reader.read()
            _write(rng, root, COUNTERS)
    finally:
        for reader in readers:
            reader.close()


def cpu_lists(rng: random.Random) -> None:
    """Read the CPU lists of sysfs and the topology of a CPU."""
    root = _directory('cpu_lists')
    _write(rng, root, LISTS)
    for found in (
        cpus.online_cpus(str(root)),
        cpus.switched_off_cpus(str(root)),
        cpus.isolated_cpus(str(root), str(root)),
        cpus.nohz_full_cpus(str(root)),
    ):
        if len(found) > cpus.MOST_CPUS:
            raise AssertionError(f'{len(found)} CPUs were accepted')
    host_cpus.host_cpus((0, 1), str(root))


def bridges(rng: random.Random) -> None:
    """Discover the bridges and uplinks of a host."""
    root = _directory('bridges')
    _write(rng, root, NICS)
    found = discovery.Discovery(sysfs=root).discover('node')
    for bridge in found.topology.bridges:
        for uplink in bridge.uplinks:
            if uplink.mbps < 0 or uplink.slots < 0:
                raise AssertionError(f'{uplink} was accepted')


@functools.cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix='soak-', dir='/dev/shm')


@functools.cache
def _directory(name: str) -> pathlib.Path:
    """Return the directory of a part; it is removed at exit."""
    path = pathlib.Path(_temporary().name, name)
    path.mkdir()
    return path


def _write(
    rng: random.Random, root: pathlib.Path, files: Mapping[str, str]
) -> None:
    """Write files in place, because probes keep them open.

    Each third is damaged: another text, none, or any bytes.
    """
    for name, valid in files.items():
        content = valid.encode()
        kind = rng.randint(0, 11)
        if kind < 2:
            text = damage.characters(rng, valid)
            content = text.encode(errors='surrogatepass')
        elif kind == 2:
            text = str(damage.value(rng))
            content = text.encode(errors='surrogatepass')
        elif kind == 3:
            content = rng.randbytes(rng.randint(0, 40))
        path = str(root / name)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        with contextlib.closing(os.fdopen(descriptor, 'wb')) as file:
            file.write(content)
