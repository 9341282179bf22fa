# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Directories and files that other users could change."""

import os
import pathlib
import tempfile
from typing import Any
from unittest import mock

from oslotest import base

from nova_vhpc.linux import private_path

NOBODY = 4294967000
"""A user and group that run no tests."""


class PrivatePathTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.top = pathlib.Path(tempfile.mkdtemp())
        self.place = self.top / 'above' / 'state'
        self.place.mkdir(parents=True, mode=0o755)

    def give_away(
        self, path: pathlib.Path, *, uid: int | None = None, gid: int = 0
    ) -> None:
        """Have a path belong to another user and group.

        Only root could give it to them.
        """
        real_stat, real_fstat = os.stat, os.fstat
        inode = path.stat().st_ino

        def changed(status: os.stat_result) -> os.stat_result:
            if status.st_ino != inode:
                return status
            fields = list(status)[:10]
            fields[4:6] = status.st_uid if uid is None else uid, gid
            return os.stat_result(fields)

        def stat(path: Any, **options: Any) -> os.stat_result:
            return changed(real_stat(path, **options))

        def fstat(descriptor: int) -> os.stat_result:
            return changed(real_fstat(descriptor))

        for name, function in (('stat', stat), ('fstat', fstat)):
            patcher = mock.patch.object(os, name, function)
            patcher.start()
            self.addCleanup(patcher.stop)

    def test_own_directory_below_a_sticky_one_is_private(self) -> None:
        self.top.chmod(0o1777)
        self.assertEqual('', private_path.problem(self.place))

    def test_missing_directory_is_no_problem(self) -> None:
        self.assertEqual('', private_path.problem(self.place / 'no' / 'more'))

    def test_directory_that_others_may_write_is_named(self) -> None:
        for mode in (0o777, 0o757, 0o1777):
            self.place.chmod(mode)
            problem = private_path.problem(self.place)
            self.assertIn(f'{self.place} has mode {mode:04o}', problem)
            self.assertIn(f'chmod go-w {self.place}', problem)

    def test_directory_that_another_group_may_write_is_named(self) -> None:
        self.place.chmod(0o775)
        self.give_away(self.place, gid=NOBODY)
        self.assertIn('has mode 0775', private_path.problem(self.place))

    def test_directory_of_another_user_is_named(self) -> None:
        self.give_away(self.place, uid=NOBODY)
        problem = private_path.problem(self.place)
        self.assertIn(f'belongs to user {NOBODY}', problem)

    def test_directory_above_that_others_may_write_is_named(self) -> None:
        above = self.place.parent
        above.chmod(0o777)
        self.assertIn(f'{above} has mode', private_path.problem(self.place))

    def test_directory_behind_a_link_is_checked(self) -> None:
        self.place.chmod(0o777)
        link = self.top / 'link'
        link.symlink_to(self.place)
        self.assertIn(str(self.place), private_path.problem(link))

    def test_file_of_another_user_is_a_problem(self) -> None:
        file = self.place / 'record'
        file.write_text('')
        with file.open() as opened:
            self.assertEqual('', private_path.file_problem(opened.fileno()))
            self.give_away(file, uid=NOBODY)
            problem = private_path.file_problem(opened.fileno())
        self.assertIn(f'belongs to user {NOBODY}', problem)
