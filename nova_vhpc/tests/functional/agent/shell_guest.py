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


"""A real guest with a shell on its serial port, for tests.

It boots the lab's kernel and programs, but another first process: the test
says what the guest's system does, by the guest's own ``ip`` and ``ping``.
"""

import pathlib
import re
import socket
import subprocess
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from typing import Any

from nova_vhpc.testbed import guest as lab_guest
from nova_vhpc.testbed import image as lab_image

PATIENCE_S = 120.0

INIT = """\
#!/bin/sh
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
while read -r module; do insmod "/modules/$module.ko"; done < /modules/order
# Only what the test sends is to be on the wires; and a NIC answers for its
# own address alone, however many of them share a bridge.
echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6
echo 1 > /proc/sys/net/ipv4/conf/all/arp_ignore
echo ready.
while read -r line; do eval "$line"; done
"""


def build_image(scratch: pathlib.Path) -> lab_image.GuestImage:
    """The lab's image with :data:`INIT`; the kernel unpacks both archives.

    :param scratch: a directory to write it to.
    """
    lab = lab_image.build_image()
    with tempfile.TemporaryDirectory() as name:
        init = pathlib.Path(name, 'init')
        init.write_text(INIT)
        init.chmod(0o755)
        more = subprocess.run(
            ['cpio', '--quiet', '-o', '-H', 'newc'],
            input=b'init\n',
            stdout=subprocess.PIPE,
            cwd=name,
            check=True,
        ).stdout
    initrd = scratch / 'shell.cpio'
    initrd.write_bytes(lab.initrd.read_bytes() + more)
    return lab_image.GuestImage(lab.kernel, initrd)


class ShellGuest:
    """A running guest; :meth:`wait` before the first command.

    :ivar domain: libvirt's.
    """

    def __init__(
        self,
        conn: Any,
        image: lab_image.GuestImage,
        name: str,
        bridges: Iterable[str],
        scratch: pathlib.Path,
    ) -> None:
        path = scratch / f'{name}.sock'
        root = ElementTree.fromstring(
            lab_guest.domain_xml(
                name, image, vcpus=1, extra_specs={}, bridges=bridges
            )
        )
        devices = root.find('devices')
        assert devices is not None
        serial = ElementTree.SubElement(devices, 'serial', type='unix')
        ElementTree.SubElement(serial, 'source', mode='bind', path=str(path))
        self.domain = conn.createXML(ElementTree.tostring(root, 'unicode'))
        self._serial = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._serial.settimeout(1)
        self._serial.connect(str(path))
        self._commands = 0

    @property
    def uuid(self) -> str:
        """Of the domain, which Nova's server would have too."""
        uuid: str = self.domain.UUIDString()
        return uuid

    def end(self) -> None:
        """Destroy it."""
        self._serial.close()
        self.domain.destroy()

    def wait(self) -> None:
        """Wait until the guest is up and reads what is typed."""
        self._hear(r'ready\.', 'after its start')

    def run(self, *commands: str) -> str:
        """Run commands in turn; what they print.

        :raises AssertionError: one of them failed, or took too long.
        """
        self._commands += 1
        # The terminal echoes what is typed, in which this is no number.
        mark = f'end-{self._commands}='
        line = f'{{ {" && ".join(commands)}; }} 2>&1; echo {mark}$?.\n'
        self._serial.sendall(line.encode())
        heard, status = self._hear(rf'{mark}(\d+)\.', f'to {line!r}')
        if status != '0':
            raise AssertionError(f'in the guest: {heard}')
        return heard

    def _hear(self, pattern: str, when: str) -> tuple[str, str]:
        """Listen until a pattern is heard; its last group, too."""
        end = time.monotonic() + PATIENCE_S
        heard = ''
        while time.monotonic() < end:
            try:
                heard += self._serial.recv(4096).decode(errors='replace')
            except TimeoutError:
                continue
            found = re.search(pattern, heard)
            if found is not None:
                return heard, found[found.re.groups]
        raise AssertionError(f'no answer {when} but {heard!r}')
