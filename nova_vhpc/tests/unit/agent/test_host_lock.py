# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of :mod:`nova_vhpc.agent.host_lock`."""

import errno
import pathlib
import shutil
import stat
import tempfile
from unittest import mock

from oslotest import base

from nova_vhpc.agent import errors, host_lock


class TestLock(base.BaseTestCase):
    def test_second_lock_is_refused_until_the_first_is_released(self) -> None:
        path = tempfile.mkdtemp()
        first, second = host_lock.Lock(path), host_lock.Lock(path)
        first.acquire()
        error = self.assertRaises(errors.AgentError, second.acquire)
        self.assertIn('stop it first', str(error))
        first.release()
        second.acquire()
        second.release()

    def test_lock_file_is_readable_by_its_owner_only(self) -> None:
        made = host_lock.Lock(tempfile.mkdtemp())
        made.acquire()
        made.release()
        self.assertEqual(0o600, stat.S_IMODE(made.path.stat().st_mode))

    def test_lock_works_on_a_full_file_system(self) -> None:
        path = tempfile.mkdtemp()
        first, second = host_lock.Lock(path), host_lock.Lock(path)
        full = OSError(errno.ENOSPC, 'No space left on device')
        with mock.patch.object(host_lock.os, 'pwrite', side_effect=full):
            first.acquire()
        self.assertRaises(errors.AgentError, second.acquire)
        first.release()

    def test_second_lock_is_refused_if_the_run_path_was_removed(self) -> None:
        """systemd removes it when a second agent fails to start."""
        journal = pathlib.Path(tempfile.mkdtemp())
        path = tempfile.mkdtemp()
        first = host_lock.Lock(path, journal)
        first.acquire()
        shutil.rmtree(path)
        second = host_lock.Lock(path, journal)
        for _ in range(2):
            error = self.assertRaises(errors.AgentError, second.acquire)
            self.assertIn('stop it first', str(error))
            self.assertIn(str(journal), str(error))
        first.release()
        second.acquire()
        second.release()

    def test_agent_with_other_paths_on_the_same_libvirt_is_refused(
        self,
    ) -> None:
        """As of a package and of a container."""
        directory = tempfile.mkdtemp()
        uri = f'qemu+unix:///system?socket={directory}/libvirt-sock'
        first, second = (
            host_lock.Lock(tempfile.mkdtemp(), libvirt_uri=uri)
            for _ in range(2)
        )
        dry_run = host_lock.Lock(tempfile.mkdtemp())
        first.acquire()
        error = self.assertRaises(errors.AgentError, second.acquire)
        self.assertIn('uses the same libvirt; stop it first', str(error))
        dry_run.acquire()
        dry_run.release()
        first.release()
        second.acquire()
        second.release()

    def test_directory_of_libvirt_that_cannot_be_written_is_passed_over(
        self,
    ) -> None:
        for directory in ('/proc/1', '/nonexistent', tempfile.mkdtemp()):
            made = host_lock.Lock(
                tempfile.mkdtemp(),
                libvirt_uri=f'qemu:///system?socket={directory}/sock',
            )
            if directory.startswith('/tmp'):
                # Others could lock first, and keep agents from starting.
                pathlib.Path(directory).chmod(0o777)
            made.acquire()
            made.release()

    def test_directory_of_libvirt_is_that_of_its_socket(self) -> None:
        for uri, directory in (
            ('qemu:///system', '/run/libvirt'),
            ('qemu+unix:///system?socket=/a/b/sock', '/a/b'),
            ('qemu:///session', None),
            ('qemu+ssh://root@host/system', None),
            ('test:///default', None),
            ('', None),
        ):
            found = host_lock.libvirt_directory(uri)
            self.assertEqual(directory, found and str(found))

    def test_missing_journal_directory_is_not_created(self) -> None:
        missing = pathlib.Path(tempfile.mkdtemp(), 'journal')
        made = host_lock.Lock(tempfile.mkdtemp(), missing)
        made.acquire()
        made.release()
        self.assertFalse(missing.exists())

    def test_run_path_that_is_a_file_is_refused(self) -> None:
        with tempfile.NamedTemporaryFile() as file:
            self.assertRaises(
                errors.AgentError, host_lock.Lock(file.name).acquire
            )
