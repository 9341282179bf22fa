# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Read a domain's settings by ``virsh`` and a guest's progress."""

import dataclasses
import os
import re
import select
import subprocess
import time
import tty
from pathlib import Path
from typing import Any

from nova_vhpc_lab.testbed import patience

ANSWER_S = 60.0 * patience.TIMES
"""Time for the answers to a guest's packets, in seconds."""


@dataclasses.dataclass(frozen=True)
class Cputune:
    """CPU settings of a running domain.

    :ivar scheduler: output of ``virsh schedinfo``.
    :ivar pins: host CPUs of each vCPU, as ``virsh vcpupin`` shows them.
    :ivar emulator: host CPUs of the emulator threads.
    :ivar xml: the ``<cputune>`` element without what has no effect. libvirt
        has no call that removes an element, so a restored domain may have a
        pin to all CPUs, period and quota of an unlimited domain, and the
        default shares in its XML. ``pins`` and ``scheduler`` show them exactly
        like none.
    """

    scheduler: tuple[tuple[str, str], ...]
    pins: tuple[str, ...]
    emulator: str
    xml: str

    def __getitem__(self, name: str) -> str:
        """Return a value of ``virsh schedinfo``."""
        return dict(self.scheduler)[name]

    def changes(self, other: 'Cputune') -> list[str]:
        """Return the differences to another reading, in words."""
        changes = [
            f'{name}: {value} -> {other[name]}'
            for name, value in self.scheduler
            if other[name] != value
        ]
        if self.pins != other.pins:
            changes.append(f'pins: {self.pins} -> {other.pins}')
        if self.emulator != other.emulator:
            changes.append(f'emulator: {self.emulator} -> {other.emulator}')
        if not changes and self.xml != other.xml:
            changes.append(f'xml: {self.xml} -> {other.xml}')
        return changes


class Virsh:
    """The program ``virsh``, connected to one libvirtd."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def __call__(self, *words: str) -> str:
        """Run a command of virsh and return its output.

        :raises subprocess.CalledProcessError: if it fails.
        """
        return subprocess.run(
            ('virsh', '-q', '-c', self.uri, *words),
            check=True,
            capture_output=True,
            text=True,
            timeout=60 * patience.TIMES,
        ).stdout

    def cputune(self, uuid: str) -> Cputune:
        """Return the settings of a running domain.

        :raises subprocess.CalledProcessError: if there is no such domain.
        """
        xml = self('dumpxml', uuid)
        element = re.search('<cputune>.*</cputune>', xml, re.DOTALL)
        return Cputune(
            scheduler=tuple(
                _pairs(self('schedinfo', uuid, '--live'), ':'),
            ),
            pins=tuple(p for _, p in _pairs(self('vcpupin', uuid, '--live'))),
            emulator=self('emulatorpin', uuid, '--live').split()[-1],
            xml=with_effect(element[0] if element else ''),
        )


def with_effect(cputune: str) -> str:
    """Return a ``<cputune>`` element without pins and default values.

    :param cputune: XML of the element; empty if there is none.
    :returns: empty if nothing is left.
    """
    text = re.sub(
        '<(vcpupin|emulatorpin) [^>]*/>'
        '|<period>100000</period>|<quota>-1</quota>|<shares>1024</shares>',
        '',
        cputune,
    )
    text = re.sub(r'\s+', ' ', text)
    return '' if text == '<cputune> </cputune>' else text


def _pairs(text: str, separator: str | None = None) -> list[tuple[str, str]]:
    pairs = []
    for line in text.splitlines():
        words = [word.strip() for word in line.split(separator)]
        if len(words) == 2:
            pairs.append((words[0], words[1]))
    return pairs


class Console:
    """A guest's serial console, and its log.

    :param path: file of the log.
    :param virsh: connection to the libvirtd that the guest belongs to.
    :param server: ID of the server.
    """

    def __init__(self, path: Path, virsh: Virsh, server: str) -> None:
        self.path = path
        self._virsh = virsh
        self._server = server

    def progress(self) -> int | None:
        """Return the last reported progress; None before the first."""
        try:
            with self.path.open('rb') as source:
                source.seek(max(0, self.path.stat().st_size - 4096))
                text = source.read().decode(errors='replace')
        except OSError:
            return None
        numbers: list[Any] = re.findall(r'vhpc: [a-z]+ (\d+)\r?\n', text)
        return int(numbers[-1]) if numbers else None

    def address(self) -> str | None:
        """Return the address that the guest got by DHCP; None before that."""
        addresses = re.findall(r'vhpc: address (\S+) by DHCP', self.text())
        return addresses[-1] if addresses else None

    def text(self) -> str:
        """Return the log of the guest's present run; empty before it."""
        try:
            return self.path.read_text(errors='replace')
        except OSError:
            return ''

    def ping(self, address: str, packets: int) -> bool:
        """Have the guest send packets to another one, which answers each.

        :returns: whether all answers came.
        """
        terminal = self._virsh('ttyconsole', self._server).strip()
        file = os.open(terminal, os.O_RDWR | os.O_NOCTTY)
        try:
            # Otherwise the guest would read what it writes.
            tty.setraw(file)
            os.write(file, f'ping -q -i 0.1 -c {packets} {address}\n'.encode())
            return _answers(file, packets + ANSWER_S) == packets
        finally:
            os.close(file)


def _answers(console: int, timeout_s: float) -> int:
    """Return the number of packets that ``ping`` says it received."""
    text = ''
    deadline = time.monotonic() + timeout_s
    while (left_s := deadline - time.monotonic()) > 0:
        # The terminal must stay open: QEMU looks once a second whether it is,
        # and takes no input else. As long as it is, output must be read.
        if select.select([console], [], [], left_s)[0]:
            text += os.read(console, 4096).decode(errors='replace')
        if done := re.search(r'(\d+) packets received', text):
            return int(done[1])
    return -1
