#!/usr/bin/env python3
# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Record traces of I/O events, in the way of ../shared/traces.

Four ranks of an MPI program run in network namespaces on one bridge, so they
exchange messages by TCP and not by shared memory. Every 100 ms, the packets
sent and received at each rank's NIC are read. The programs are those of
kernels.c or any others. Needs root, iproute2, MPICH (Debian: mpich,
libmpich-dev) and a machine without other load::

    lab/nova_vhpc_lab/traces/record.py --out DIR mg-a:2 cg-b:2 ...
    lab/nova_vhpc_lab/traces/record.py --out DIR --bin NPB/bin mg-a cg-b ...
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

PERIOD_S = 0.1
RANKS = range(4)
BRIDGE = 'nvhpc-trace'
NETWORK = '10.97.97'
LEAST_PACKETS = 60
COUNTERS = ('rx_packets', 'tx_packets')

SHELL = f"""#!/bin/sh
# In place of ssh: run a command on the host of an address.
[ "$1" = -x ] && shift
rank=$((${{1#{NETWORK}.}} - 1))
shift
exec ip netns exec {BRIDGE}-$rank unshare --uts \
sh -c "hostname rank-$rank; $*"
"""


def ip(*command: str) -> None:
    """Run iproute2's ip."""
    subprocess.run(('ip', *command), check=True)


def connect() -> None:
    """Create the bridge and the ranks' network namespaces."""
    ip('link', 'add', BRIDGE, 'type', 'bridge')
    ip('address', 'add', f'{NETWORK}.254/24', 'dev', BRIDGE)
    ip('link', 'set', BRIDGE, 'up')
    for rank in RANKS:
        name = f'{BRIDGE}-{rank}'
        inner = ('-n', name)
        ip('netns', 'add', name)
        ip(
            'link',
            'add',
            nic(rank),
            'type',
            'veth',
            'peer',
            'name',
            'eth0',
            'netns',
            name,
        )
        ip('link', 'set', nic(rank), 'master', BRIDGE, 'up')
        ip(*inner, 'address', 'add', f'{NETWORK}.{rank + 1}/24', 'dev', 'eth0')
        ip(*inner, 'link', 'set', 'eth0', 'up')
        ip(*inner, 'link', 'set', 'lo', 'up')


def disconnect() -> None:
    """Remove the bridge and the namespaces, as far as they exist."""
    for rank in RANKS:
        subprocess.run(
            ('ip', 'netns', 'delete', f'{BRIDGE}-{rank}'), check=False
        )
    subprocess.run(('ip', 'link', 'delete', BRIDGE), check=False)


def nic(rank: int) -> str:
    """Return the name of the host's end of a rank's NIC."""
    return f'nvtrace{rank}'


def packets() -> list[int]:
    """Return the packets that each NIC has sent and received."""
    return [
        sum(
            int(
                pathlib.Path(
                    f'/sys/class/net/{nic(rank)}/statistics', name
                ).read_text()
            )
            for name in COUNTERS
        )
        for rank in RANKS
    ]


def periods(run: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """Yield the packets of each period until the program ends."""
    before = packets()
    due = time.monotonic()
    while run.poll() is None:
        due += PERIOD_S
        time.sleep(max(0.0, due - time.monotonic()))
        now = packets()
        yield [new - old for new, old in zip(now, before, strict=True)]
        before = now


def record(
    name: str, program: list[str], tools: pathlib.Path, seconds: int
) -> str:
    """Run a program and return its trace, from first to last activity.

    :param tools: directory with the shell that replaces ssh.
    :param seconds: longest duration of the run, in seconds.
    """
    command = ['nice', '-n', '10', 'timeout', str(seconds), 'mpiexec']
    command += ['-launcher', 'ssh', '-launcher-exec', str(tools / 'shell')]
    command += ['-iface', BRIDGE, '-n', str(len(RANKS)), '-ppn', '1']
    command += ['-hosts', ','.join(f'{NETWORK}.{n + 1}' for n in RANKS)]
    command += program
    environment = os.environ | {
        'UCX_TLS': 'tcp,self',
        'UCX_NET_DEVICES': 'eth0',
    }
    with subprocess.Popen(command, env=environment) as run:
        rows = list(periods(run))
    if run.returncode == 124:
        print(f'{name}: cut after {seconds} s', file=sys.stderr)
    elif run.returncode:
        raise SystemExit(f'{name}: mpiexec failed ({run.returncode})')
    while rows and not any(rows[0]):
        del rows[0]
    # Remove ARP, and the idle end of a program that hung in MPI_Finalize until
    # the timeout.
    while rows and sum(rows[-1]) < LEAST_PACKETS:
        del rows[-1]
    lines = [[f'vm{rank}' for rank in RANKS]]
    lines += [[str(number) for number in row] for row in rows]
    return ''.join(','.join(line) + '\n' for line in lines)


def main() -> int:
    """Record the programs of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument('--out', type=pathlib.Path, required=True)
    parser.add_argument(
        '--seconds',
        type=int,
        default=110,
        help='longest duration of a run (default: %(default)s)',
    )
    parser.add_argument(
        '--bin',
        type=pathlib.Path,
        metavar='DIR',
        help='run programs with names like cg.A in this directory, such as '
        'the NAS benchmarks, instead of those of kernels.c',
    )
    parser.add_argument(
        'programs',
        nargs='+',
        metavar='PROGRAM-CLASS:SPEED',
        help='program (bt cg ep ft is lu mg sp), class (s w a b c, with any '
        'suffix) and the divisor of its number of operations',
    )
    args = parser.parse_args()
    if os.geteuid():
        parser.error('network namespaces need root')
    for tool in ('ip', 'mpicc', 'mpiexec'):
        if not shutil.which(tool):
            parser.error(f'{tool} is missing (Debian: iproute2, mpich)')
    args.out.mkdir(parents=True, exist_ok=True)
    os.nice(-10)
    with tempfile.TemporaryDirectory() as directory:
        tools = pathlib.Path(directory)
        source = pathlib.Path(__file__).with_name('kernels.c')
        subprocess.run(
            ('mpicc', '-O2', '-w', '-o', tools / 'kernels', source, '-lm'),
            check=True,
        )
        (tools / 'shell').write_text(SHELL)
        (tools / 'shell').chmod(0o755)
        try:
            connect()
            for item in args.programs:
                name, _, speed = item.partition(':')
                kernel, _, size = name.partition('-')
                program = [str(tools / 'kernels'), kernel, size[:1].upper()]
                program.append(speed or '1')
                if args.bin:
                    binary = (
                        args.bin.resolve() / f'{kernel}.{size[:1].upper()}'
                    )
                    program = [str(binary)]
                trace = record(name, program, tools, args.seconds)
                (args.out / f'{name}.csv').write_text(trace)
                print(f'{name}: {trace.count(chr(10)) - 1} periods')
        finally:
            disconnect()
    return 0


if __name__ == '__main__':
    sys.exit(main())
