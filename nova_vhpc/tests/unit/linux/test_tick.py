# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


import gzip
import pathlib

import fixtures

from nova_vhpc.linux import tick
from nova_vhpc.tests import base


class KernelTest(base.TestCase):
    def test_tick_rate_is_read_from_the_first_readable_config(self):
        self.dir = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        packed = self.dir / 'config.gz'
        packed.write_bytes(gzip.compress(b'CONFIG_HZ_250=y\nCONFIG_HZ=250\n'))
        plain = self.dir / 'config'
        plain.write_text('CONFIG_HZ=1000\n')
        torn = self.dir / 'torn.gz'
        torn.write_bytes(packed.read_bytes()[:20])
        absent = self.dir / 'absent'
        self.assertEqual(250, tick.tick_hz([absent, packed]))
        self.assertEqual(1000, tick.tick_hz([torn, plain, packed]))
        self.assertIsNone(tick.tick_hz([absent]))
