# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of unpacking the kernels of Debian and Ubuntu."""

import errno
import gzip
import lzma
import pathlib
import struct
import subprocess
import tempfile
from unittest import mock

import fixtures

from nova_vhpc.tests import base
from nova_vhpc_lab.testbed import errors, guest_kernel, toolchain

ELF = b'\x7fELF' + bytes(range(256)) * 64
SIZE = len(ELF)


def run_on(data, *command):
    return subprocess.run(
        command, input=data, capture_output=True, check=True
    ).stdout


def bzimage_of(payload, size=SIZE):
    """Return a bzImage by Linux' arch/x86/boot.rst, protocol 2.15."""
    image = bytearray(16 * 512)
    image[0x1F1] = 15
    image[0x202:0x206] = b'HdrS'
    struct.pack_into('<H', image, 0x206, 0x20F)
    head = b'the decompressor' * 40
    payload += struct.pack('<I', size)
    struct.pack_into('<II', image, 0x248, len(head), len(payload))
    return bytes(image) + head + payload + b'rubbish' * 99


class UncompressedTest(base.TestCase):
    def packed(self):
        # The kernel's build packs with lz4's legacy format (scripts/
        # Makefile.lib, cmd_lz4).
        yield 'lz4', run_on(ELF, 'lz4', '-l', '-9', '-c', '-')
        yield 'zstd', run_on(ELF, 'zstd', '-19', '-c')
        yield 'xz', lzma.compress(ELF, check=lzma.CHECK_CRC32)
        # gzip's last four bytes are the size, which bzimage_of() appends.
        yield 'gzip', gzip.compress(ELF)[:-4]

    def test_payload_of_each_compression_is_unpacked(self):
        for name, payload in self.packed():
            with self.subTest(name):
                self.assertEqual(
                    ELF, guest_kernel.uncompressed(bzimage_of(payload))
                )

    def test_payload_of_a_wrong_size_is_left_packed(self):
        for name, payload in self.packed():
            with self.subTest(name):
                image = bzimage_of(payload, size=SIZE + 1)
                self.assertIs(image, guest_kernel.uncompressed(image))

    def test_unknown_image_is_left_as_it_is(self):
        for image in (b'MZ rest', bzimage_of(b'unheard of' * 9)):
            self.assertIs(image, guest_kernel.uncompressed(image))


class CollectModulesTest(base.TestCase):
    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.modules = pathlib.Path(directory.name, '6.12-cloud')
        self.target = pathlib.Path(directory.name, 'target')
        self.target.mkdir()

    def write(self, suffix, pack, builtin=()):
        for module in guest_kernel.MODULES:
            if module not in builtin:
                path = self.modules / 'kernel' / f'{module}.ko{suffix}'
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(pack(module.encode()))
        self.modules.mkdir(exist_ok=True)
        (self.modules / 'modules.builtin').write_text(
            ''.join(f'kernel/{module}.ko\n' for module in builtin)
        )

    def collected(self):
        guest_kernel.collect_modules(self.modules, self.target)
        order = (self.target / 'order').read_text().split()
        return {
            name: (self.target / f'{name}.ko').read_bytes() for name in order
        }

    def assert_all_plain(self):
        expected = {m.split('/')[-1]: m.encode() for m in guest_kernel.MODULES}
        collected = self.collected()
        self.assertEqual(expected, collected)
        self.assertEqual(list(expected), list(collected))

    def test_uncompressed_modules_are_copied(self):
        self.write('', lambda data: data)
        self.assert_all_plain()

    def test_xz_modules_are_decompressed(self):
        self.write('.xz', lzma.compress)
        self.assert_all_plain()

    def test_zstd_modules_are_decompressed(self):
        self.write('.zst', lambda data: run_on(data, 'zstd', '-c'))
        self.assert_all_plain()

    def test_built_in_modules_are_left_out(self):
        self.write('.xz', lzma.compress, builtin=guest_kernel.MODULES[:5])
        self.assertEqual(
            ['failover', 'net_failover', 'virtio_net', 'virtio_blk'],
            list(self.collected()),
        )

    def test_no_module_is_copied_if_all_are_built_in(self):
        self.write('', lambda data: data, builtin=guest_kernel.MODULES)
        self.assertEqual({}, self.collected())

    def test_missing_module_is_reported(self):
        self.write('', lambda data: data)
        (self.modules / 'kernel/drivers/net/virtio_net.ko').unlink()
        error = self.assertRaises(errors.ImageError, self.collected)
        self.assertIn('6.12-cloud', str(error))
        self.assertIn('drivers/net/virtio_net', str(error))

    def test_corrupt_module_is_reported(self):
        self.write('.xz', lambda data: b'rubbish')
        error = self.assertRaises(errors.ImageError, self.collected)
        self.assertIn('virtio_ring.ko.xz', str(error))


class FetchTest(base.TestCase):
    def test_nothing_is_kept_if_unpacking_the_kernel_fails(self):
        cache = pathlib.Path(self.useFixture(fixtures.TempDir()).path)

        def run_tool(*command, **more):
            """Act as the distribution's programs, whose files are read."""
            if command[0] == 'apt-cache':
                return '  Depends: linux-image-6.12-cloud\n'
            if command[0] == 'apt-get':
                (more['cwd'] / 'some.deb').touch()
            else:
                root = pathlib.Path(command[-1])
                for name in (
                    'boot/vmlinuz-6.12-cloud',
                    'lib/modules/6.12-cloud/modules.builtin',
                ):
                    (root / name).parent.mkdir(parents=True)
                    (root / name).write_bytes(bytes(1024))
            return ''

        def collect(modules, target):
            (target / 'order').touch()
            raise OSError(errno.ENOSPC, 'No space left on device')

        with (
            mock.patch.object(toolchain, 'run_tool', run_tool),
            mock.patch.object(guest_kernel, 'collect_modules', collect),
        ):
            self.assertRaises(OSError, guest_kernel.fetch, cache)
        self.assertEqual([], list(cache.iterdir()))
