# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import concurrent.futures
import hashlib
import hmac
import pathlib
import stat
import tempfile

import fixtures
from hypothesis import given
from hypothesis import strategies as st
from oslo_config import cfg

from nova_vhpc.clients import credentials
from nova_vhpc.conf import nova_api as nova_conf
from nova_vhpc.conf import vendordata as vendordata_conf
from nova_vhpc.tests import base
from nova_vhpc.vendordata import opaque_ids

_IDS = st.text('abc-0123456789', min_size=1, max_size=32)
_NAMES = st.text(st.characters(exclude_characters='\0'), max_size=64)
_SECRETS = st.binary(min_size=16, max_size=64)


class OpaqueIdsTest(base.TestCase):
    @given(_IDS, _IDS, _NAMES, _NAMES, _SECRETS)
    def test_ids_differ_by_project_kind_and_name(
        self, project, other_project, name, other_name, secret
    ):
        ids = opaque_ids.OpaqueIds(project, secret)
        found = {ids.host(name), ids.switch(name), ids.rack(name)}
        self.assertEqual(3, len(found))
        # Another server of the operator's with the same secret agrees.
        again = opaque_ids.OpaqueIds(project, secret)
        self.assertEqual(ids.host(name), again.host(name))
        others = opaque_ids.OpaqueIds(other_project, secret)
        self.assertEqual(
            project == other_project, ids.host(name) == others.host(name)
        )
        self.assertEqual(
            name == other_name, ids.host(name) == ids.host(other_name)
        )

    @given(_SECRETS, _SECRETS)
    def test_ids_cannot_be_made_without_the_secret(self, secret, guess):
        right, wrong = (opaque_ids.OpaqueIds('p', s) for s in (secret, guess))
        self.assertEqual(
            # A key is padded with null bytes to a block.
            secret.rstrip(b'\0') == guess.rstrip(b'\0'),
            right.host('cn-1') == wrong.host('cn-1'),
        )

    def test_secret_is_not_shown(self):
        ids = opaque_ids.OpaqueIds('p', b'do-not-tell-anyone')
        self.assertNotIn('do-not-tell', repr(ids))


class SecretTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.file = self.path / 'state' / 'id_secret'
        self.log = self.useFixture(fixtures.FakeLogger())

    def secret(self, option='', password='Winter2026!', create=True):
        conf = cfg.ConfigOpts()
        nova_conf.register_opts(conf)
        vendordata_conf.register_opts(conf)
        with tempfile.NamedTemporaryFile('w', dir=self.path) as file:
            file.write(
                '[vhpc_vendordata]\n'
                f'id_secret_file = {self.file}\nid_secret = {option}\n'
                '[vhpc_nova]\nauth_type = password\nusername = u\n'
                f'auth_url = http://127.0.0.1:9/\npassword = {password}\n'
            )
            file.flush()
            conf(['--config-file', file.name])
        credentials.check(conf, [nova_conf.GROUP])
        return opaque_ids.secret(conf, create)

    def test_first_start_makes_a_file_for_its_user_alone(self):
        secret = self.secret()
        self.assertGreaterEqual(len(secret), 64)
        self.assertEqual(secret, self.file.read_bytes().strip())
        self.assertEqual(0o600, stat.S_IMODE(self.file.stat().st_mode))
        self.assertEqual([self.file], list(self.file.parent.iterdir()))
        # Those who have several hosts must know.
        self.assertIn('[vhpc_vendordata]id_secret', self.log.output)
        self.assertIn(str(self.file), self.log.output)
        self.assertNotIn(secret.decode(), self.log.output)

    def test_later_starts_and_the_operators_tools_agree(self):
        secret = self.secret()
        self.assertEqual(secret, self.secret(password='renewed'))
        self.assertEqual(secret, self.secret(create=False))

    def test_workers_that_start_at_once_agree(self):
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            made = list(pool.map(lambda _: self.secret(), range(64)))
        self.assertEqual(1, len(set(made)))
        self.assertEqual([self.file], list(self.file.parent.iterdir()))

    def test_passwords_cannot_be_tried_by_the_ids(self):
        """A tenant knows project, host name and ID."""
        found = opaque_ids.OpaqueIds('p', self.secret()).host('cn-1')
        key = b'Winter2026!'
        for guess in (
            key,
            hmac.new(key, b'nova-vhpc opaque ids', hashlib.sha256).digest(),
            hashlib.sha256(key).digest(),
        ):
            tried = opaque_ids.OpaqueIds('p', guess)
            self.assertNotEqual(found, tried.host('cn-1'))

    def test_option_comes_before_the_file_and_needs_none(self):
        self.assertEqual(b'f' * 64, self.secret('f' * 64))
        self.assertFalse(self.file.exists())

    def test_option_that_could_be_guessed_is_refused(self):
        for option, reason in (
            ('f' * 15, 'fewer than 16'),
            ('a-password-of-Keystone', '[vhpc_nova]'),
        ):
            error = self.assertRaises(
                ValueError, self.secret, option, 'a-password-of-Keystone'
            )
            self.assertIn('[vhpc_vendordata]id_secret', str(error))
            self.assertIn(reason, str(error))
            self.assertNotIn(option, str(error))

    def test_without_option_and_file_there_is_no_secret(self):
        directory = self.path / 'a-file'
        directory.write_text('')
        self.file = directory / 'id_secret'
        error = self.assertRaises(opaque_ids.NoSecretError, self.secret)
        self.assertIn(str(self.file), str(error))
        self.assertIn('openssl rand', str(error))
        self.file = self.path / 'id_secret'
        self.assertRaises(opaque_ids.NoSecretError, self.secret, create=False)
        self.assertFalse(self.file.exists())

    def test_file_that_keeps_no_secret_is_not_used(self):
        for content, mode, reason in (
            ('f' * 64, 0o644, 'all users may use it (mode 0644)'),
            ('f' * 64, 0o606, 'all users may use it'),
            ('', 0o600, 'it has 0 characters'),
            ('f' * 15 + '\n', 0o600, 'it has 15 characters'),
        ):
            self.file.parent.mkdir(exist_ok=True)
            self.file.write_text(content)
            self.file.chmod(mode)
            error = self.assertRaises(opaque_ids.NoSecretError, self.secret)
            self.assertIn(reason, str(error))
            self.assertIn('restart nova-vhpc-vendordata', str(error))
