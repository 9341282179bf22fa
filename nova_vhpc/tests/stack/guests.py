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


"""What stands in libvirt for a domain, read the way ``virsh`` does."""

import contextlib
import dataclasses
import re
import subprocess
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True)
class Cputune:
    """All that anybody could have changed of one domain's CPU settings.

    :ivar scheduler: ``virsh schedinfo``.
    :ivar pins: host CPUs of each vCPU, as ``virsh vcpupin`` shows them.
    :ivar emulator: the same of the emulator threads.
    :ivar xml: the ``<cputune>`` element of the live domain, without the
        pins: libvirt has no call to take a pin away, so what is left of
        one is a pin to all CPUs, which is what ``pins`` then shows.
    """

    scheduler: tuple[tuple[str, str], ...]
    pins: tuple[str, ...]
    emulator: str
    xml: str

    def __getitem__(self, name: str) -> str:
        return dict(self.scheduler)[name]

    def changes(self, other: 'Cputune') -> list[str]:
        """What differs in another reading, in words."""
        found = [
            f'{name}: {value} -> {other[name]}'
            for name, value in self.scheduler
            if other[name] != value
        ]
        if self.pins != other.pins:
            found.append(f'pins: {self.pins} -> {other.pins}')
        if self.emulator != other.emulator:
            found.append(f'emulator: {self.emulator} -> {other.emulator}')
        if not found and self.xml != other.xml:
            found.append(f'xml: {self.xml} -> {other.xml}')
        return found


class Virsh:
    """The command line client on one libvirtd."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def __call__(self, *words: str) -> str:
        return subprocess.run(
            ('virsh', '-q', '-c', self.uri, *words),
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        ).stdout

    def domains(self) -> list[str]:
        """Uuids of the running domains."""
        return self('list', '--uuid').split()

    def taps(self) -> set[str]:
        """Host ends of all domains' NICs; what is known if libvirt fails."""
        found: set[str] = set()
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            for uuid in self('list', '--all', '--uuid').split():
                found.update(re.findall(r'\btap\S+', self('domiflist', uuid)))
        return found

    def cputune(self, uuid: str) -> Cputune:
        """Live settings of one domain.

        :raises subprocess.CalledProcessError: no such domain.
        """
        xml = self('dumpxml', uuid)
        found = re.search('<cputune>.*</cputune>', xml, re.DOTALL)
        return Cputune(
            scheduler=tuple(
                _pairs(self('schedinfo', uuid, '--live'), ':'),
            ),
            pins=tuple(p for _, p in _pairs(self('vcpupin', uuid, '--live'))),
            emulator=self('emulatorpin', uuid, '--live').split()[-1],
            xml=_without_pins(found[0] if found else ''),
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
    """Progress of a guest, from the log of its serial console."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def progress(self) -> int | None:
        """Work done since the guest's start; None before its first line."""
        try:
            with self.path.open('rb') as source:
                source.seek(max(0, self.path.stat().st_size - 4096))
                text = source.read().decode(errors='replace')
        except OSError:
            return None
        numbers: list[Any] = re.findall(r'vhpc: [a-z]+ (\d+)\r?\n', text)
        return int(numbers[-1]) if numbers else None
