# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Spinning that KVM detects: exits on PAUSE loops, from debugfs.

Measures: how often a vCPU spun so long that the processor's pause-loop
exiting (PLE), or its equivalent, interrupted it (``directed_yield_attempted``
of each vCPU), times the least duration of such a spin. That is a lower bound
of SPIN, which run-queue delay does not contain. Units: count times
:data:`SPIN_US`. Cost: one pread per vCPU and tick, about 1 us. Blind to: TCG
guests, hosts without debugfs, kernels before 5.14 (no such counter), spins
shorter than the PLE window. Halts are not counted, because a vCPU that halts
has nothing to do. Needs root and CAP_DAC_READ_SEARCH for debugfs.
"""

import pathlib

from nova_vhpc.agent.probes import base

COUNTER = 'directed_yield_attempted'

SPIN_US = 2.0
"""KVM's ``ple_window`` of 4096 cycles is 1.4 to 2 us at 2 to 3 GHz."""


class KvmProbe:
    """The probe of spinning, by pause-loop exits of KVM guests."""

    covers = frozenset({base.SPIN})

    def __init__(self, host: base.Host) -> None:
        self._kvm = pathlib.Path(host.sys_root, 'kernel/debug/kvm')

    def check(self) -> str | None:
        """Return why debugfs does not show KVM, or None."""
        try:
            if not self._kvm.is_dir():
                return f'{self._kvm}: not there; no KVM, or no debugfs'
        except OSError as error:
            return f'{self._kvm}: {error.strerror}'
        return None

    def attach(self, target: base.Target) -> 'KvmReader | None':
        """Open the counters of each vCPU of the VM's KVM instance."""
        groups = sorted(
            self._kvm.glob(f'{target.pid}-*/vcpu*'),
            key=lambda path: int(path.name.removeprefix('vcpu') or 0),
        )
        paths = [group / COUNTER for group in groups]
        if not paths:
            return None
        try:
            return KvmReader(base.KeptFiles(paths, 32))
        except OSError:
            return None


class KvmReader:
    """Reads the increase of the counters, summed over the vCPUs."""

    __slots__ = ('_files', '_last')

    def __init__(self, files: base.KeptFiles) -> None:
        self._files = files
        self._last: int | None = None

    def read(self) -> base.SyncReading | None:
        """Return the increase since the last call; None if it is unknown."""
        try:
            now = sum(map(int, b' '.join(self._files.read()).split()))
        except (OSError, ValueError):
            self._last = None
            return None
        last, self._last = self._last, now
        if last is None:
            return None
        return base.SyncReading((now - last) * SPIN_US / len(self._files))

    def close(self) -> None:
        """Close all files."""
        self._files.close()
