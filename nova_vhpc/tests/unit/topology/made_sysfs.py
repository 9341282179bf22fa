# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A made sysfs, for NICs that the test host lacks."""

from pathlib import Path

import fixtures
from oslotest import base


class SysfsTestCase(base.BaseTestCase):
    """Makes files as the kernel has them for network interfaces."""

    def setUp(self) -> None:
        super().setUp()
        self.sysfs = Path(self.useFixture(fixtures.TempDir()).path)

    def link(self, name: str, **files: str) -> Path:
        path = self.sysfs / 'class' / 'net' / name
        path.mkdir(parents=True)
        files = {'carrier': '1', 'operstate': 'up', 'speed': '100000'} | files
        for file, text in files.items():
            (path / file).write_text(text + '\n')
        return path

    def bridge(self, name: str, flags: str = '0x1003') -> None:
        path = self.link(name, flags=flags)
        (path / 'bridge').mkdir()
        (path / 'brif').mkdir()

    def port(self, name: str, bridge: str = 'br0', **files: str) -> Path:
        path = self.link(name, **files)
        (self.sysfs / 'class' / 'net' / bridge / 'brif' / name).mkdir()
        return path

    def nic(self, name: str, bridge: str = 'br0', **files: str) -> None:
        (self.port(name, bridge, **files) / 'device').mkdir()
