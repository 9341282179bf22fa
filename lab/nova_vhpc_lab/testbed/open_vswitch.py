# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A private Open vSwitch with its own database and directory.

It runs from Debian's package ``openvswitch-switch``, and switches in
userspace: bridges need ``datapath_type=netdev``, and no kernel module is
loaded. An Open vSwitch that already runs on the machine is not touched; but
each network namespace has room for one that switches in userspace.
"""

import ctypes
import json
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Self

from nova_vhpc_lab.testbed import patience

SCHEMA = Path('/usr/share/openvswitch/vswitch.ovsschema')
START_S = 60.0 * patience.TIMES

_NETDEV = Path('/sys/class/net/ovs-netdev')
"""Link that the first switch in userspace makes."""

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def _end_with_parent() -> None:
    """End this child when its parent ends; called between fork and exec."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class OpenVswitchError(Exception):
    """Open vSwitch is not installed or did not start."""


class PrivateOpenVswitch:
    """An Open vSwitch that lives as long as the ``with`` block."""

    def __init__(self) -> None:
        self._root = Path()
        self._had_netdev = _NETDEV.exists()
        self._database: subprocess.Popen[bytes] | None = None
        self._switch: subprocess.Popen[bytes] | None = None

    @property
    def remote(self) -> str:
        """Where clients find the database."""
        return f'unix:{self._root}/db.sock'

    def __enter__(self) -> Self:
        if not SCHEMA.exists():
            raise OpenVswitchError(
                f'{SCHEMA} is not there; install the package '
                'openvswitch-switch'
            )
        self._root = Path(tempfile.mkdtemp(prefix='vhpc-ovs-'))
        try:
            self._run('ovsdb-tool', 'create', self._file('conf.db'), SCHEMA)
            self.start_database()
            self.vsctl('--no-wait', 'init')
            self.start_switch()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def start_database(self) -> None:
        """Start ovsdb-server and wait until it answers."""
        self._database = self._spawn(
            'ovsdb-server',
            self._file('conf.db'),
            f'--remote=p{self.remote}',
        )
        end_s = time.monotonic() + START_S
        while not self._database_answers():
            if self._database.poll() is not None or time.monotonic() > end_s:
                output_end = self._file('output').read_text()[-2000:]
                raise OpenVswitchError(
                    f'ovsdb-server did not start: {output_end}'
                )
            time.sleep(0.02)

    def start_switch(self) -> None:
        """Start ovs-vswitchd and wait until it has read the database."""
        self._switch = self._spawn('ovs-vswitchd', self.remote)
        # Without --no-wait, it returns when ovs-vswitchd has done it.
        self.vsctl('set', 'Open_vSwitch', '.', 'external_ids:hostname=lab')

    def kill_database(self) -> None:
        """Kill ovsdb-server."""
        _kill(self._database)
        self._database = None

    def kill_switch(self) -> None:
        """Kill ovs-vswitchd."""
        _kill(self._switch)
        self._switch = None

    def pause_database(self) -> None:
        """Freeze ovsdb-server: connections stay, but it does not answer."""
        assert self._database is not None
        self._database.send_signal(signal.SIGSTOP)

    def resume_database(self) -> None:
        """Continue a frozen ovsdb-server."""
        assert self._database is not None
        self._database.send_signal(signal.SIGCONT)

    def vsctl(self, *words: object) -> str:
        """Return the output of ovs-vsctl.

        Without ``--no-wait``, it waits for ovs-vswitchd.
        """
        return self._run(
            'ovs-vsctl',
            f'--db={self.remote}',
            f'--timeout={START_S:.0f}',
            *words,
        )

    def transact(self, *operations: dict[str, Any]) -> None:
        """Run operations of RFC 7047 in one transaction.

        :raises OpenVswitchError: one of them failed.
        """
        answer = self._run(
            *('ovsdb-client', 'transact', self.remote),
            json.dumps(['Open_vSwitch', *operations]),
        )
        if any('error' in (one or {}) for one in json.loads(answer)):
            raise OpenVswitchError(answer.strip())

    def close(self) -> None:
        """End Open vSwitch, and delete its directory."""
        if self._switch is not None:
            self._switch.terminate()
            try:
                self._switch.wait(10)
            except subprocess.TimeoutExpired:
                self.kill_switch()
            self._switch = None
        self.kill_database()
        if self._root != Path():
            self._delete_links()
            shutil.rmtree(self._root, ignore_errors=True)

    def _delete_links(self) -> None:
        """Delete the links that outlive a switch in userspace."""
        select = {
            'op': 'select',
            'table': 'Interface',
            'where': [['type', '==', 'internal']],
            'columns': ['name'],
        }
        query = json.dumps(['Open_vSwitch', select])
        try:
            answer = self._run(
                'ovsdb-tool', 'query', self._file('conf.db'), query
            )
        except OpenVswitchError:
            # There is no database yet, so there are no links.
            return
        names = [row['name'] for row in json.loads(answer)[0]['rows']]
        if not self._had_netdev:
            names.append(_NETDEV.name)
        for name in names:
            subprocess.run(('ip', 'link', 'delete', name), capture_output=True)

    def _file(self, name: str) -> Path:
        return self._root / name

    def _environment(self) -> dict[str, str]:
        root = str(self._root)
        return {
            'PATH': '/usr/sbin:/usr/bin:/sbin:/bin',
            'LANG': 'C.UTF-8',
            'OVS_RUNDIR': root,
            'OVS_DBDIR': root,
            'OVS_LOGDIR': root,
        }

    def _spawn(self, program: str, *words: object) -> subprocess.Popen[bytes]:
        with self._file('output').open('ab') as output:
            return subprocess.Popen(
                [program, *map(str, words), '--pidfile', '-vconsole:warn'],
                env=self._environment(),
                cwd=self._root,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=_end_with_parent,
            )

    def _run(self, *words: object) -> str:
        done = subprocess.run(
            [str(word) for word in words],
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=2 * START_S,
        )
        if done.returncode:
            raise OpenVswitchError(
                f'{" ".join(map(str, words))}: {done.stderr.strip()}'
            )
        return done.stdout

    def _database_answers(self) -> bool:
        try:
            self._run('ovsdb-client', 'list-dbs', self.remote)
        except OpenVswitchError:
            return False
        return True


def _kill(process: subprocess.Popen[bytes] | None) -> None:
    if process is not None:
        process.kill()
        process.wait()
