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

"""Tests of building the kernel of busy guests."""

from pathlib import Path

import fixtures

from nova_vhpc.testbed import spinner
from nova_vhpc.tests import base


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
