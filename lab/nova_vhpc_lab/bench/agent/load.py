# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Processes and threads that stand in for QEMU and its vCPUs.

Each VM is a child process with one thread per vCPU. The threads have QEMU's
names and sleep nearly all the time. The program, ``python -S load.py VMS
VCPUS``, is a small interpreter that forks, so that hundreds of children share
memory. It prints one process ID per VM, and ends with all children when its
standard input is closed.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time

NAP_S = 1.0

BURSTS = 100
BURST_PACKETS = 20
"""Together 200 packets in 100 ms, four quantisation steps of 50 events."""


def _vcpu(number: int) -> None:
    with open('/proc/thread-self/comm', 'w') as file:
        file.write(f'CPU {number}/KVM')
    # Wake-ups are spread over time, like the timers of idle guests.
    time.sleep(NAP_S * (number % 10) / 10)
    while True:
        time.sleep(NAP_S)


def _vm(vcpus: int) -> None:
    """Run a child process; skip the cleanup that belongs to its parent."""
    try:
        os.close(0)
        os.close(1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        threading.stack_size(64 * 1024)
        for number in range(vcpus):
            threading.Thread(target=_vcpu, args=(number,), daemon=True).start()
        while True:
            time.sleep(60)
    finally:
        os._exit(1)


def _send() -> None:
    """Send datagrams for one second out of three; none is received."""
    sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sink.bind(('127.0.0.1', 0))
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    while True:
        for _ in range(BURSTS):
            for _ in range(BURST_PACKETS):
                sender.sendto(b'', sink.getsockname())
            time.sleep(0.01)
        time.sleep(2.0)


def main(argv: list[str]) -> int:
    """Fork the VMs, print their process IDs, wait for the end of stdin."""
    if argv == ['traffic']:
        threading.Thread(target=_send, daemon=True).start()
        sys.stdin.read()
        return 0
    vms, vcpus = int(argv[0]), int(argv[1])
    pids: list[int] = []
    try:
        for _ in range(vms):
            pid = os.fork()
            if pid == 0:
                _vm(vcpus)
            pids.append(pid)
        # Unbuffered: print() would flush again at exit, and fail again.
        os.write(1, f'{" ".join(map(str, pids))}\n'.encode())
        sys.stdin.read()
    except BrokenPipeError:
        pass  # the process that started this one has ended
    except OSError:
        return 1  # fork failed; the parent counts the process IDs
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for pid in pids:
            os.waitpid(pid, 0)
    return 0


class Traffic:
    """Packets on the loopback device during a ``with`` block.

    The loopback device is the tap of every stand-in VM. The packets come and
    go like the I/O of a program with phases, so predictors have work to do.
    """

    def __enter__(self) -> 'Traffic':
        self._process = subprocess.Popen(
            (sys.executable, '-S', __file__, 'traffic'),
            stdin=subprocess.PIPE,
        )
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate()


class StartError(Exception):
    """Some of the stand-in processes or threads did not start."""

    def __init__(self, vms: int, vcpus: int) -> None:
        super().__init__(
            f'stand-ins of {vms} VMs with {vcpus} vCPUs do not start; they '
            f'take {vms * (vcpus + 1)} processes and threads (ulimit -u, '
            'pids.max of the control group)'
        )


def _ended(pid: int) -> bool:
    with open(f'/proc/{pid}/stat') as file:
        return file.read().rpartition(')')[2].split()[0] == 'Z'


class Load:
    """The stand-in VMs, which run during a ``with`` block.

    :param vms: number of VMs.
    :param vcpus: number of vCPUs per VM.
    :ivar pids: process ID of each VM.
    """

    def __init__(self, vms: int, vcpus: int) -> None:
        self.vms = vms
        self.vcpus = vcpus
        self.pids: tuple[int, ...] = ()
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> 'Load':
        self._process = subprocess.Popen(
            (sys.executable, '-S', __file__, str(self.vms), str(self.vcpus)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.pids = tuple(
            int(pid) for pid in self._process.stdout.readline().split()
        )
        try:
            if len(self.pids) != self.vms:
                raise StartError(self.vms, self.vcpus)
            self._wait_for_threads()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process is not None
        self._process.communicate()

    def _wait_for_threads(self) -> None:
        end = time.monotonic() + 60
        for pid in self.pids:
            while len(os.listdir(f'/proc/{pid}/task')) <= self.vcpus:
                if time.monotonic() > end or _ended(pid):
                    raise StartError(self.vms, self.vcpus)
                time.sleep(0.01)
        # A thread sets its name shortly after it appears in /proc.
        time.sleep(0.5)


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
