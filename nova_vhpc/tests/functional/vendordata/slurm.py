# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A private Slurm: munged, slurmctld and a slurmd for each node.

All run on this host, in the foreground, with files in a directory of their
own: no service of the system is touched.
"""

import getpass
import os
import pathlib
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Sequence

import fixtures

from nova_vhpc_lab.testbed.patience import PATIENCE_S

_CONF = """\
ClusterName=vhpc
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={top}/munge.sock
StateSaveLocation={top}/state
SlurmdSpoolDir={top}/spool.%n
SlurmctldPidFile={top}/slurmctld.pid
SlurmdPidFile={top}/slurmd.%n.pid
SlurmctldLogFile={top}/slurmctld.log
SlurmdLogFile={top}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
TopologyPlugin=topology/tree
MpiDefault=none
MailProg=/bin/true
"""


class Slurm(fixtures.Fixture):
    """Starts Slurm with one CPU per node; ``run`` runs its commands.

    :param nodes: names of the nodes.
    :param topology: text of ``topology.conf``.
    :ivar user: user that owns all, daemons and jobs.
    """

    def __init__(self, nodes: Sequence[str], topology: str) -> None:
        super().__init__()
        self.user = getpass.getuser()
        self._nodes = nodes
        self._topology = topology

    def _setUp(self) -> None:
        self._top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self._conf = self._top / 'slurm.conf'
        self._write_files()
        key = self._top / 'munge.key'
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        self._start(
            'munged',
            '--foreground',
            '--force',
            f'--key-file={key}',
            f'--socket={self._top}/munge.sock',
            f'--pid-file={self._top}/munged.pid',
            f'--log-file={self._top}/munged.log',
            f'--seed-file={self._top}/munge.seed',
        )
        self.wait_for('munged', (self._top / 'munge.sock').exists)
        self._start('slurmctld', '-D', '-c', '-f', str(self._conf))
        for node in self._nodes:
            self._start('slurmd', '-D', '-N', node, '-f', str(self._conf))
        self.wait_for('slurmd', self.is_idle)

    def _write_files(self) -> None:
        host = socket.gethostname().partition('.')[0]
        ports = _free_ports(len(self._nodes) + 1)
        lines = [
            f'NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 '
            f'Port={port} CPUs=1 State=UNKNOWN'
            for node, port in zip(self._nodes, ports[1:], strict=True)
        ]
        lines.append('PartitionName=all Nodes=ALL Default=YES State=UP')
        self._conf.write_text(
            _CONF.format(
                host=host,
                port=ports[0],
                user=self.user,
                top=self._top,
            )
            + '\n'.join(lines)
            + '\n'
        )
        unified = pathlib.Path('/sys/fs/cgroup/cgroup.controllers').exists()
        (self._top / 'cgroup.conf').write_text(
            f'CgroupPlugin=cgroup/{"v2" if unified else "v1"}\n'
            'IgnoreSystemd=yes\n'
        )
        (self._top / 'topology.conf').write_text(self._topology)
        (self._top / 'state').mkdir()
        for node in self._nodes:
            (self._top / f'spool.{node}').mkdir()

    def _start(self, program: str, *argv: str) -> None:
        path = shutil.which(program, path=f'{os.environ["PATH"]}:/usr/sbin')
        if path is None:
            raise AssertionError(f'{program} is missing; see bindep.txt')
        with (self._top / f'{program}.out').open('ab') as out:
            process = subprocess.Popen(
                [path, *argv], stdout=out, stderr=subprocess.STDOUT
            )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)

    def is_idle(self) -> bool:
        """Return whether all nodes are up, and none runs a job."""
        found = self.run('sinfo', '-h', '-N', '-o', '%N %T', check=False)
        return sorted(found.split('\n')[:-1]) == sorted(
            f'{node} idle' for node in self._nodes
        )

    def wait_for(self, program: str, condition: Callable[[], bool]) -> None:
        """Wait until a condition is true.

        :param program: daemon whose output tells why it is not.
        """
        end = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > end:
                text = (self._top / f'{program}.out').read_text()
                raise AssertionError(f'{program} does not start: {text}')
            time.sleep(0.2)

    def run(self, *argv: str, check: bool = True) -> str:
        """Run a command of Slurm and return what it prints.

        :param check: whether it must succeed.
        """
        return subprocess.run(
            argv,
            env={**os.environ, 'SLURM_CONF': str(self._conf)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if not check else None,
            text=True,
            check=check,
            timeout=PATIENCE_S,
        ).stdout


def _free_ports(count: int) -> list[int]:
    """Return ports on which nobody listens."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(('127.0.0.1', 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
