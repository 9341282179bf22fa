# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of the configuration files of the embedded stack."""

import collections
import configparser
import pathlib
import shlex
import tempfile

from cryptography import fernet

from nova_vhpc.tests import base
from nova_vhpc_lab.stack import config, environment


class ConfigTest(base.TestCase):
    def test_helper_command_is_quoted_if_the_path_has_spaces(self):
        directory = tempfile.TemporaryDirectory(suffix=' of mine')
        self.addCleanup(directory.cleanup)
        root = pathlib.Path(directory.name)
        ports = collections.defaultdict(lambda: 1)
        programs = environment.Environment(pathlib.Path('/my clone/bin'))
        path = config.Config(root, ports, 'x').write_compute(
            'one', {}, programs
        )
        written = configparser.RawConfigParser(strict=False)
        written.read(path)
        commands = [
            shlex.split(written[section]['helper_command'])
            for section in written.sections()
            if 'helper_command' in written[section]
        ]
        self.assertNotEqual([], commands)
        for command in commands:
            self.assertEqual(
                ['/my clone/bin/privsep-helper', '--config-file', str(path)],
                command,
            )

    def test_keystone_has_keys_that_only_its_user_can_read(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        ports = collections.defaultdict(lambda: 1)
        folder = config.Config(
            pathlib.Path(directory.name), ports, 'x'
        ).write_keystone()
        written = config.read(folder / 'keystone.conf')
        keys = pathlib.Path(written['fernet_tokens']['key_repository'])
        self.assertEqual(0, keys.stat().st_mode & 0o077)
        contents = {path.name: path.read_bytes() for path in keys.iterdir()}
        self.assertEqual({'0', '1'}, set(contents))
        for content in contents.values():
            fernet.Fernet(content)
        self.assertNotEqual(contents['0'], contents['1'])
