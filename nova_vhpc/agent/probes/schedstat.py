# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Run-queue delay of the vCPU threads, from ``/proc/PID/task/TID/schedstat``.

Measures: how long each vCPU thread was runnable without running. The kernel
includes the time held back by a quota (seen on Linux 6.18), so the probe
covers WAIT and THROTTLE. Units: nanoseconds. Cost: one pread of an open file
per vCPU and tick, about 1 us, plus the reads of :mod:`~.starvation` for waits
that have not ended. Blind to: spinning (a vCPU that burns its slice waiting
for a sibling looks busy), and to steal above this host if the host itself is a
VM. Needs CONFIG_SCHED_INFO, which distributions set; no capability, because
every user may read the file.
"""

import pathlib
import time

from nova_vhpc.agent.probes import base, starvation


class SchedstatProbe:
    """The preferred probe of latency: cheap, and complete for each vCPU."""

    covers = frozenset({base.WAIT, base.THROTTLE})

    def __init__(self, host: base.Host) -> None:
        self._proc = pathlib.Path(host.proc_root)

    def check(self) -> str | None:
        """Return why the kernel does not keep schedstat, or None."""
        path = self._proc / 'self' / 'schedstat'
        try:
            fields = path.read_text().split()
        except OSError as error:
            return f'{path}: {error.strerror}'
        if len(fields) != 3 or not all(field.isdigit() for field in fields):
            return f'{path}: not three numbers'
        if fields[2] == '0':
            return f'{path}: stays zero; kernel without scheduler statistics'
        return None

    def attach(self, target: base.Target) -> 'SchedstatReader | None':
        """Open the files of all vCPU threads."""
        if not target.tids:
            return None
        task = self._proc / str(target.pid) / 'task'
        try:
            return SchedstatReader(
                base.KeptFiles(
                    (task / str(tid) / 'schedstat' for tid in target.tids), 96
                ),
                starvation.Starvation(
                    [task / str(tid) / 'stat' for tid in target.tids]
                ),
            )
        except OSError:
            return None


class SchedstatReader:
    """Reads the increase of each vCPU's run, wait and switch counters."""

    __slots__ = (
        '_files',
        '_last',
        '_nothing',
        '_starvation',
        '_texts',
    )

    def __init__(
        self, files: base.KeptFiles, starving: starvation.Starvation
    ) -> None:
        self._files = files
        self._starvation = starving
        vcpus = len(files)
        # Text and counters of the last read, by vCPU; empty before the first
        # read and after a failed one.
        self._texts: list[bytes] = []
        self._last: list[base.VcpuCounters] = []
        zeros = (0.0,) * vcpus
        self._nothing = base.SyncReading(0.0, zeros, zeros, (0,) * vcpus)

    def read(self) -> base.SyncReading | None:
        """Return the increase since the last call; None if it is unknown.

        vCPUs whose counters have not changed are not parsed.
        """
        try:
            texts = self._files.read()
            due = self._starvation.due()
            if texts == self._texts and not due:
                return self._nothing
            if not self._texts:
                self._last = [_counters(text) for text in texts]
                self._texts = texts
                return None
            return self._differences(texts, due)
        except (OSError, ValueError):
            self._texts = []
            self._starvation.clear()
            return None

    def _differences(self, texts: list[bytes], due: bool) -> base.SyncReading:
        """Return the increase of the counters.

        :param due: whether vCPUs may wait for a CPU without any counter
            showing it.
        :raises ValueError: the text is not what the kernel writes.
        """
        vcpus = len(texts)
        run_us, runs = [0.0] * vcpus, [0] * vcpus
        wait, ran = [0] * vcpus, [0] * vcpus
        last = self._last
        for vcpu, (text, before) in enumerate(
            zip(texts, self._texts, strict=True)
        ):
            if text != before:
                now = _counters(text)
                run_was, wait_was, runs_was = last[vcpu]
                last[vcpu] = now
                run = now[0] - run_was
                run_us[vcpu] = run / 1000
                wait[vcpu] = now[1] - wait_was
                runs[vcpu] = now[2] - runs_was
                ran[vcpu] = run | runs[vcpu]
        self._texts = texts
        if due:
            self._starvation.correct(ran, wait, time.monotonic_ns())
        return base.SyncReading(
            sum(wait) / (1000 * vcpus),
            tuple(run_us),
            tuple([one / 1000 for one in wait]),
            tuple(runs),
        )

    def counters(self) -> list[base.VcpuCounters]:
        """Return the counters of each vCPU as of the last read.

        Empty if they are unknown. Other threads may call it.
        """
        counted_ns = self._starvation.counted_ns
        return [
            base.VcpuCounters(run, wait + counted_ns(vcpu), runs)
            for vcpu, (run, wait, runs) in enumerate(self._last)
        ]

    def close(self) -> None:
        """Close all files."""
        self._files.close()
        self._starvation.clear()


def _counters(text: bytes) -> base.VcpuCounters:
    """Parse the ``schedstat`` file of one vCPU thread.

    :raises ValueError: the text is not what the kernel writes.
    """
    run, wait, runs = text.split()
    return base.VcpuCounters(int(run), int(wait), int(runs))
