# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.


"""Read a domain's settings by ``virsh`` and a guest's progress."""

import contextlib
import dataclasses
import re
import subprocess
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True)
class Cputune:
    """CPU settings of a running domain.

    :ivar scheduler: output of ``virsh schedinfo``.
    :ivar pins: host CPUs of each vCPU, as ``virsh vcpupin`` shows them.
    :ivar emulator: host CPUs of the emulator threads.
    :ivar xml: the ``<cputune>`` element without pins. libvirt has no call
        that removes a pin, so a restored domain has a pin to all CPUs in its
        XML, which ``pins`` shows exactly like no pin.
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
            timeout=60,
        ).stdout

    def domains(self) -> list[str]:
        """Return the UUIDs of the running domains."""
        return self('list', '--uuid').split()

    def taps(self) -> set[str]:
        """Return the taps of all domains; those read so far if virsh fails."""
        taps: set[str] = set()
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            for uuid in self('list', '--all', '--uuid').split():
                taps.update(re.findall(r'\btap\S+', self('domiflist', uuid)))
        return taps

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
            xml=_without_pins(element[0] if element else ''),
        )


def _without_pins(xml: str) -> str:
    text = re.sub('<(vcpupin|emulatorpin) [^>]*/>', '', xml)
    return re.sub(r'\s+', ' ', text)


def _pairs(text: str, separator: str | None = None) -> list[tuple[str, str]]:
    pairs = []
    for line in text.splitlines():
        words = [word.strip() for word in line.split(separator)]
        if len(words) == 2:
            pairs.append((words[0], words[1]))
    return pairs


class Console:
    """The log of a guest's serial console."""

    def __init__(self, path: Path) -> None:
        self.path = path

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
