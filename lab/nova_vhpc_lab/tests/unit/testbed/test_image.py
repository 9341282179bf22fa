# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of building the image of a guest."""

import os
import shutil
import tempfile
from pathlib import Path
from unittest import mock

import fixtures

from nova_vhpc.tests import base
from nova_vhpc_lab.testbed import errors, guest_kernel, image, toolchain


class BuildImageTest(base.TestCase):
    def test_unusable_cache_directory_is_reported_with_its_variable(self):
        with tempfile.NamedTemporaryFile() as file:
            error = self.assertRaises(
                errors.ImageError,
                image.build_image,
                Path(file.name, 'cache'),
            )
        self.assertIn('XDG_CACHE_HOME', str(error))

    def test_incomplete_image_is_removed_if_a_program_fails(self):
        cache = Path(self.useFixture(fixtures.TempDir()).path)
        tree = cache / 'kernel-6.12'
        (tree / 'modules').mkdir(parents=True)
        with (
            mock.patch.object(guest_kernel, 'fetch', return_value=tree),
            # cpio fails in the same way on a full disk.
            mock.patch.object(
                toolchain, 'need', return_value=shutil.which('false')
            ),
            mock.patch.object(toolchain, 'run_tool'),
        ):
            error = self.assertRaises(
                errors.ImageError, image.build_image, cache
            )
        self.assertIn('cpio failed', str(error))
        self.assertEqual(['kernel-6.12', 'lock'], sorted(os.listdir(cache)))

    def test_missing_program_is_reported(self):
        with tempfile.TemporaryDirectory() as name:
            programs = Path(name, 'bin')
            programs.mkdir()
            (programs / 'busybox').symlink_to('/bin/true')
            with (
                mock.patch.dict(os.environ, {'PATH': str(programs)}),
                mock.patch.object(
                    guest_kernel, 'fetch', return_value=Path(name)
                ),
            ):
                error = self.assertRaises(
                    errors.ImageError, image.build_image, Path(name, 'cache')
                )
        self.assertIn('cpio is not installed', str(error))
