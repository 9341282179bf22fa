# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of starting a private libvirtd."""

import os
from pathlib import Path
from unittest import mock

import fixtures

from nova_vhpc.tests import base
from nova_vhpc_lab.testbed import libvirtd


class PrivateLibvirtdTest(base.TestCase):
    def test_start_failure_has_the_end_of_the_log(self):
        # The log is deleted with the directory, so the error quotes it.
        root = Path(self.useFixture(fixtures.TempDir()).path)
        (root / 'log').write_text('all is well\nno room left\n\n')
        error = self.assertRaises(
            libvirtd.LibvirtdError,
            libvirtd.wait_until_it_answers,
            'qemu:///system',
            root / 'socket',
            (root / 'log', root / 'out'),
            lambda: True,
        )
        self.assertEqual(
            f'libvirtd does not answer (it ended); {root}/log ends: all is '
            'well / no room left',
            str(error),
        )

    def test_start_failure_on_a_full_disk_reports_the_free_space(self):
        root = Path(self.useFixture(fixtures.TempDir()).path)
        usage = mock.Mock(free=20 << 10)
        with mock.patch.object(
            libvirtd.shutil, 'disk_usage', return_value=usage
        ):
            error = self.assertRaises(
                libvirtd.LibvirtdError,
                libvirtd.wait_until_it_answers,
                'qemu:///system',
                root / 'none' / 'socket',
                (),
                lambda: True,
            )
        self.assertIn(f'{root} has only 20 KiB', str(error))

    def test_full_disk_during_configuration_is_reported(self):
        root = Path(self.useFixture(fixtures.TempDir()).path)
        daemon = libvirtd.PrivateLibvirtd(root / 'lv', cache=root / 'cache')
        with (
            mock.patch.object(libvirtd, 'check'),
            mock.patch.object(os, 'geteuid', return_value=0),
            mock.patch.object(
                Path, 'write_text', side_effect=OSError(28, 'No space left')
            ),
        ):
            error = self.assertRaises(libvirtd.LibvirtdError, daemon.start)
        self.assertEqual(
            f'no libvirtd in {root}/lv: No space left', str(error)
        )

    def test_directory_with_blanks_is_quoted_in_the_uri(self):
        # libvirt splits its list of log outputs, and its URIs, at blanks.
        root = Path(self.useFixture(fixtures.TempDir()).path, 'a b')
        daemon = libvirtd.PrivateLibvirtd(root, cache=root / 'cache')
        with (
            mock.patch.object(libvirtd, 'check'),
            mock.patch.object(daemon, '_start_supervisor'),
            mock.patch.object(daemon, '_start_daemon'),
        ):
            daemon.start()
        conf = (root / 'libvirtd.conf').read_text()
        self.assertIn('log_outputs = "3:stderr"', conf)
        self.assertIn('/a%20b/sock/libvirt-sock', daemon.uri)

    def test_cache_is_absolute_if_xdg_cache_home_is_empty_or_relative(self):
        # libvirtd reaches the cache by a symbolic link from elsewhere.
        for cache_home, expected in (
            ('', Path('~/.cache').expanduser()),
            ('here', Path('here').absolute()),
        ):
            with mock.patch.dict(os.environ, {'XDG_CACHE_HOME': cache_home}):
                self.assertEqual(
                    expected / 'nova-vhpc' / 'libvirt',
                    libvirtd.PrivateLibvirtd(Path('/root')).cache,
                )
