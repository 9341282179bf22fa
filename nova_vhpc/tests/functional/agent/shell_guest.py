# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""A real guest with a shell on its serial port, for tests.

It boots the testbed's kernel and programs, but its init is a shell that runs
what the test types, for example the guest's own ``ip`` and ``ping``.
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

from nova_vhpc_lab.testbed import guest as testbed_guest
from nova_vhpc_lab.testbed import image as testbed_image
from nova_vhpc_lab.testbed.patience import PATIENCE_S

INIT = """\
#!/bin/sh
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
while read -r module; do insmod "/modules/$module.ko"; done < /modules/order
# Without IPv6, only packets of the test are on the wires. With arp_ignore a
# NIC answers for its own address only, even if several share a bridge.
echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6
echo 1 > /proc/sys/net/ipv4/conf/all/arp_ignore
echo ready.
while read -r line; do eval "$line"; done
"""


def build_image(scratch: pathlib.Path) -> testbed_image.GuestImage:
    """Build the testbed's image with :data:`INIT` as its init.

    The file holds two archives, of which the kernel unpacks both.

    :param scratch: directory to write the image to.
    """
    base_image = testbed_image.build_image()
    with tempfile.TemporaryDirectory() as name:
        init = pathlib.Path(name, 'init')
        init.write_text(INIT)
        init.chmod(0o755)
        init_archive = subprocess.run(
            ['cpio', '--quiet', '-o', '-H', 'newc'],
            input=b'init\n',
            stdout=subprocess.PIPE,
            cwd=name,
            check=True,
        ).stdout
    initrd = scratch / 'shell.cpio'
    initrd.write_bytes(base_image.initrd.read_bytes() + init_archive)
    return testbed_image.GuestImage(base_image.kernel, initrd)


class ShellGuest:
    """A running guest with a shell; call :meth:`wait` before :meth:`run`.

    :ivar domain: libvirt's domain.
    """

    def __init__(
        self,
        conn: Any,
        image: testbed_image.GuestImage,
        name: str,
        bridges: Iterable[str],
        scratch: pathlib.Path,
    ) -> None:
        path = scratch / f'{name}.sock'
        root = ElementTree.fromstring(
            testbed_guest.domain_xml(
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
        """UUID of the domain, which would be that of Nova's server, too."""
        uuid: str = self.domain.UUIDString()
        return uuid

    def end(self) -> None:
        """Destroy the guest."""
        self._serial.close()
        self.domain.destroy()

    def wait(self) -> None:
        """Wait until the guest's shell reads commands."""
        self._read_until(r'ready\.', 'after its start')

    def run(self, *commands: str) -> str:
        """Run commands in turn, and return what they print.

        :raises AssertionError: a command failed, or took too long.
        """
        self._commands += 1
        # The terminal echoes the command line; only in the shell's output is
        # the mark followed by a number.
        mark = f'end-{self._commands}='
        line = f'{{ {" && ".join(commands)}; }} 2>&1; echo {mark}$?.\n'
        self._serial.sendall(line.encode())
        output, status = self._read_until(rf'{mark}(\d+)\.', f'to {line!r}')
        if status != '0':
            raise AssertionError(f'in the guest: {output}')
        return output

    def _read_until(self, pattern: str, when: str) -> tuple[str, str]:
        """Return the output up to a pattern, and the pattern's last group."""
        end = time.monotonic() + PATIENCE_S
        output = ''
        while time.monotonic() < end:
            try:
                output += self._serial.recv(4096).decode(errors='replace')
            except TimeoutError:
                continue
            match = re.search(pattern, output)
            if match is not None:
                return output, match[match.re.groups]
        raise AssertionError(f'no answer {when} but {output!r}')
