# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Packets through the VM's tap devices, from sysfs.

Measures: packets to and from the guest, each one I/O event. Units: packets.
Cost: two preads per interface and tick, about 1.5 us each. Blind to:
passed-through devices (SR-IOV), vhost-user, and how many packets guest and
host handle in one notification: each packet counts as one event. Needs no
capability.
"""

import pathlib

from nova_vhpc.agent.probes import base

COUNTERS = ('rx_packets', 'tx_packets')


class TapProbe:
    """Network I/O events."""

    def __init__(self, host: base.Host) -> None:
        self._net = pathlib.Path(host.sys_root, 'class/net')

    def check(self) -> str | None:
        """Return why sysfs shows no network interfaces, or None."""
        if not self._net.is_dir():
            return f'{self._net}: not there'
        return None

    def attach(self, target: base.Target) -> 'CounterReader | None':
        """Open the packet counters of each tap."""
        paths = [
            self._net / tap / 'statistics' / name
            for tap in target.taps
            for name in COUNTERS
        ]
        # NICs without a tap in sysfs (SR-IOV, vhost-user) must not hide the
        # others.
        paths = [path for path in paths if path.is_file()]
        if not paths:
            return None
        try:
            return CounterReader(base.KeptFiles(paths, 32))
        except OSError:
            return None


class CounterReader:
    """Reads the increase of a sum of counters, one per file."""

    __slots__ = ('_files', '_last', '_texts')

    def __init__(self, files: base.KeptFiles) -> None:
        self._files = files
        self._last: int | None = None
        self._texts: bytes = b''

    def read(self) -> float | None:
        """Return the increase since the last call; None if it is unknown."""
        try:
            texts = self._files.read_joined()
            if texts == self._texts and self._last is not None:
                return 0.0
            now = sum(map(int, texts.split()))
        except (OSError, ValueError):
            self._last = None
            return None
        self._texts = texts
        last, self._last = self._last, now
        return None if last is None else now - last

    def close(self) -> None:
        """Close all files."""
        self._files.close()
