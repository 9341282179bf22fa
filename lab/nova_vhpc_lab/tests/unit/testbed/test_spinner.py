# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of building the kernel of busy guests."""

from pathlib import Path

import fixtures

from nova_vhpc.tests import base
from nova_vhpc_lab.testbed import spinner


class BuildTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = Path(self.useFixture(fixtures.TempDir()).path)

    def test_kernel_is_an_elf_file_with_a_multiboot_header(self):
        kernel = spinner.build(self.directory).read_bytes()
        self.assertEqual(b'\x7fELF\x01', kernel[:5])
        # QEMU looks for the magic number there.
        self.assertIn(b'\x02\xb0\xad\x1b', kernel[:8192])

    def test_kernel_is_built_once(self):
        (self.directory / 'spinner.elf').write_text('as it is')
        kernel = spinner.build(self.directory)
        self.assertEqual('as it is', kernel.read_text())
