# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Programs whose credentials do not fit the cloud, on a real Keystone.

Each fault must end in one line that names the option to change. The catalog
has public endpoints only.
"""

import contextlib
import functools
import io
import json
import os
import pathlib
import unittest
from collections.abc import Mapping
from typing import Any

import fixtures
import testtools
import yaml
from oslo_config import cfg
from oslo_upgradecheck import upgradecheck
from oslo_utils import uuidutils

from nova_vhpc.agent.clusters import nova
from nova_vhpc.agent.uplinks import publish_worker
from nova_vhpc.cli import explain, flavor, vendordata
from nova_vhpc.clients import credentials
from nova_vhpc.conf import nova_api, placement, topology
from nova_vhpc.placement import client
from nova_vhpc.tests.functional.clients import api_cloud, tls
from nova_vhpc.upgradecheck import facts
from nova_vhpc_lab.stack import config

Options = Mapping[str, object]


@functools.cache
def start_cloud() -> api_cloud.ApiCloud:
    """Start the cloud of all tests here, with some faulty users."""
    cloud = unittest.enterModuleContext(api_cloud.ApiCloud())
    cloud.add_user('roleless', ())
    cloud.add_user('reader', ('reader',))
    cloud.add_user('lapsed', ('admin',))
    cloud.expire_password('lapsed')
    cloud.client('admin').make_flavor('small', {'vhpc:workload': 'parallel'})
    return cloud


class KeystoneCase(testtools.TestCase):
    """Has credentials with something wrong."""

    def setUp(self) -> None:
        super().setUp()
        self.cloud = start_cloud()
        self.folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)

    @property
    def keystone(self) -> str:
        return self.cloud.config.url('keystone', '/v3')

    def options(self, **changes: object) -> dict[str, object]:
        """Return the agent's credentials with some changes.

        :param changes: values by option; None removes one.
        """
        options = {**self.cloud.config.credentials('vhpc-agent'), **changes}
        return {k: v for k, v in options.items() if v is not None}

    def faults(self) -> dict[str, tuple[Options, tuple[str, ...]]]:
        """Return changes of credentials, with words of the message each."""
        return {
            'region': (
                {'region_name': 'Nowhere'},
                ('Nowhere', 'region_name', self.keystone),
            ),
            'interface': (
                {'valid_interfaces': 'internal'},
                ('internal endpoint', 'valid_interfaces', self.keystone),
            ),
            'password': (
                {'password': 'wrong'},
                ('401', 'password', self.keystone),
            ),
            'expired password': (
                {'username': 'lapsed'},
                ('expired', 'new password'),
            ),
            'no role': (
                {'username': 'roleless'},
                ('401', 'role', self.keystone),
            ),
            'wrong role': ({'username': 'reader'}, ('403', 'role', 'admin')),
            'no project': (
                {'project_name': None, 'project_domain_id': None},
                ('project_name',),
            ),
            'no password': ({'password': None}, ('password',)),
            'Keystone away': (
                {'auth_url': 'http://127.0.0.1:9/v3'},
                ('127.0.0.1:9', 'auth_url'),
            ),
            'address of another service': (
                {'auth_url': self.cloud.config.url('placement')},
                (self.cloud.config.url('placement'), 'auth_url'),
            ),
        }

    def read(self, **groups: Options) -> cfg.ConfigOpts:
        """Return a configuration with option groups, read from a file."""
        conf = cfg.ConfigOpts()
        for module in (nova_api, placement, topology):
            module.register_opts(conf)
        conf(['--config-file', str(self.write(**groups))])
        return conf

    def write(self, **groups: Options) -> pathlib.Path:
        return config.write(self.folder / 'nova-vhpc.conf', groups)

    def assert_line(self, text: str, *words: str) -> None:
        """Assert that a text is one line without a traceback, with words."""
        self.assertNotIn('\n', text.strip())
        self.assertNotIn('Traceback', text)
        self.assertNotIn('ConnectionPool', text)
        self.assertNotIn('Request-ID', text)
        for word in words:
            self.assertIn(word, text)


class AgentTest(KeystoneCase):
    """What the agent and the upgrade check say."""

    def ask_placement(self, conf: cfg.ConfigOpts) -> None:
        adapter = credentials.adapter(conf, placement.GROUP)
        client.PlacementClient(adapter).find_root(name='host')

    def test_right_credentials_reach_both(self) -> None:
        conf = self.read(placement=self.options(), vhpc_nova=self.options())
        self.ask_placement(conf)
        self.assertEqual(nova.Answer(), nova.NovaServers(conf, 'host').fetch())

    def test_placement_error_names_the_option(self) -> None:
        for name, (changes, words) in self.faults().items():
            with self.subTest(name):
                conf = self.read(placement=self.options(**changes))
                error = self.assertRaises(
                    (client.PlacementError, credentials.UnusableError),
                    self.ask_placement,
                    conf,
                )
                self.assert_line(str(error), '[placement]', *words)

    def test_nova_error_names_the_option(self) -> None:
        for name, (changes, words) in self.faults().items():
            with self.subTest(name):
                conf = self.read(vhpc_nova=self.options(**changes))
                error = self.assertRaises(
                    nova.NovaError, nova.NovaServers(conf, 'host').fetch
                )
                self.assert_line(str(error), '[vhpc_nova]', *words)

    def test_upgrade_check_names_the_option(self) -> None:
        for name, (changes, words) in self.faults().items():
            with self.subTest(name):
                conf = self.read(placement=self.options(**changes))
                result = facts.Checks(conf)._check_placement()
                self.assertEqual(upgradecheck.Code.FAILURE, result.code)
                self.assert_line(result.details, '[placement]', *words)

    def test_options_of_an_auth_section_are_named_there(self) -> None:
        service = {'auth_section': 'keystone', 'region_name': 'RegionOne'}
        conf = self.read(
            keystone=self.options(password='wrong'),
            placement=service,
            vhpc_nova=service,
        )
        for ask in (
            lambda: (
                publish_worker.PublishWorker(conf, 'host')
                .withdrawal()
                .move_out()
            ),
            nova.NovaServers(conf, 'host').fetch,
        ):
            error = self.assertRaises(
                (client.PlacementError, nova.NovaError), ask
            )
            self.assert_line(
                str(error), 'username, password and project_name of [keystone]'
            )

    def test_unknown_authority_is_cured_by_cafile(self) -> None:
        proxy = self.useFixture(tls.TlsProxy(self.cloud.ports['keystone']))
        url = f'https://127.0.0.1:{proxy.port}/v3'
        unknown = self.read(vhpc_nova=self.options(auth_url=url))
        error = self.assertRaises(
            nova.NovaError, nova.NovaServers(unknown, 'host').fetch
        )
        self.assert_line(str(error), url, 'cafile of [vhpc_nova]')
        known = self.options(auth_url=url, cafile=proxy.authority)
        nova.NovaServers(self.read(vhpc_nova=known), 'host').fetch()
        missing = self.options(auth_url=url, cafile='/nowhere.pem')
        error = self.assertRaises(
            nova.NovaError,
            nova.NovaServers(self.read(vhpc_nova=missing), 'host').fetch,
        )
        self.assert_line(str(error), '/nowhere.pem', 'cafile of [vhpc_nova]')

    def test_token_that_became_invalid_is_renewed(self) -> None:
        conf = self.read(placement=self.options())
        adapter = credentials.adapter(conf, placement.GROUP)
        token = adapter.session.get_token()
        self.cloud.revoke(token)
        client.PlacementClient(adapter).find_root(name='host')
        self.assertNotEqual(token, adapter.session.get_token())

    def test_queries_succeed_again_once_keystone_is_back(self) -> None:
        conf = self.read(placement=self.options(), vhpc_nova=self.options())
        servers = nova.NovaServers(conf, 'host')
        adapter = credentials.adapter(conf, placement.GROUP)
        uplinks = client.PlacementClient(adapter)
        servers.fetch()
        uplinks.find_root(name='host')
        self.cloud.daemon('keystone').stop()
        # As when the tokens expire meanwhile.
        servers.disconnect()
        adapter.session.invalidate()
        for question in (
            servers.fetch,
            lambda: uplinks.find_root(name='host'),
        ):
            error = self.assertRaises(
                (nova.NovaError, client.PlacementError), question
            )
            self.assert_line(
                str(error), self.keystone, 'is Keystone up', 'auth_url'
            )
        self.cloud.start_keystone()
        servers.fetch()
        uplinks.find_root(name='host')


class CommandTest(KeystoneCase):
    """What the commands of operators say."""

    def setUp(self) -> None:
        super().setUp()
        for name in os.environ:
            if name.startswith('OS_'):
                self.useFixture(fixtures.EnvironmentVariable(name))
        self.clouds = self.folder / 'clouds.yaml'
        self.set_env(CLIENT_CONFIG_FILE=self.clouds)

    def set_env(self, **values: object) -> None:
        for name, value in values.items():
            self.useFixture(
                fixtures.EnvironmentVariable(f'OS_{name}', str(value))
            )

    def write_clouds(self, **clouds: Any) -> None:
        self.clouds.write_text(yaml.safe_dump({'clouds': clouds}))

    def entry(self, **changes: object) -> dict[str, object]:
        """Return a cloud of clouds.yaml, with changes of its credentials."""
        auth = self.options(**changes)
        del auth['auth_type']
        return {'auth': auth}

    def run_command(self, command: Any, *arguments: str) -> tuple[int, str]:
        """Run a program; return its exit status and what it says on stderr."""
        stderr = io.StringIO()
        with (
            contextlib.redirect_stderr(stderr),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            status = command.main(list(arguments))
        return status, stderr.getvalue()

    def show(self, *arguments: str) -> tuple[int, str]:
        return self.run_command(flavor, *arguments, 'show', 'small')

    def test_faults_name_the_variable(self) -> None:
        names = {
            'valid_interfaces': 'interface',
            'cafile': 'cacert',
        }
        for name, (changes, _) in self.faults().items():
            if name == 'wrong role':
                # Each user may read flavors.
                continue
            with self.subTest(name), contextlib.ExitStack() as stack:
                for key, value in self.options(**changes).items():
                    variable = f'OS_{names.get(key, key).upper()}'
                    stack.enter_context(
                        fixtures.EnvironmentVariable(variable, str(value))
                    )
                for command, arguments in (
                    (flavor, ('show', 'small')),
                    (explain, ('--flavor', 'small')),
                ):
                    status, text = self.run_command(command, *arguments)
                    self.assertEqual(1, status)
                    self.assert_line(text, 'OS_')

    def test_one_of_two_clouds_must_be_named(self) -> None:
        self.write_clouds(east=self.entry(), west=self.entry())
        status, text = self.show()
        self.assertEqual(1, status)
        self.assert_line(text, '--os-cloud', 'OS_CLOUD', 'east, west')
        status, text = self.show('--os-cloud', 'north')
        self.assertEqual(1, status)
        self.assert_line(text, 'north', '--os-cloud', 'east, west')
        self.assertEqual((0, ''), self.show('--os-cloud', 'west'))

    def test_fault_names_the_cloud(self) -> None:
        self.write_clouds(
            east=self.entry(), west={**self.entry(), 'region_name': 'Nowhere'}
        )
        status, text = self.show('--os-cloud', 'west')
        self.assertEqual(1, status)
        self.assert_line(
            text, 'Nowhere', "region_name and interface of cloud 'west'"
        )
        self.set_env(CLOUD='west')
        self.assertEqual((status, text), self.show())

    def test_damaged_clouds_yaml_is_one_line(self) -> None:
        for content in ('clouds: [east, west]', 'clouds: [', 'clouds: 5', ''):
            with self.subTest(content):
                self.clouds.write_text(content)
                status, text = self.show('--os-cloud', 'east')
                self.assertEqual(1, status)
                self.assert_line(text, 'clouds.yaml')

    def test_missing_file_of_the_authority_is_named(self) -> None:
        proxy = self.useFixture(tls.TlsProxy(self.cloud.ports['keystone']))
        url = f'https://127.0.0.1:{proxy.port}/v3'
        self.write_clouds(
            unknown=self.entry(auth_url=url),
            missing={**self.entry(auth_url=url), 'cacert': '/nowhere.pem'},
            known={
                **self.entry(auth_url=url),
                'cacert': str(proxy.authority),
            },
        )
        for cloud in ('unknown', 'missing'):
            status, text = self.show('--os-cloud', cloud)
            self.assertEqual(1, status)
            self.assert_line(text, f"cacert of cloud '{cloud}'")
        self.assertEqual((0, ''), self.show('--os-cloud', 'known'))

    def test_tenant_learns_that_explain_is_for_administrators(self) -> None:
        tenant = self.cloud.config.credentials('tenant')
        self.write_clouds(mine=self.entry(**tenant))
        status, text = self.run_command(
            explain, '--os-cloud', 'mine', '--flavor', 'small'
        )
        self.assertEqual(1, status)
        self.assert_line(
            text, 'only an administrator', 'openstack vhpc cluster list'
        )
        self.assertNotIn('{', text)

    def test_tenant_cannot_write_a_flavor(self) -> None:
        tenant = self.cloud.config.credentials('tenant')
        self.write_clouds(mine=self.entry(**tenant))
        status, text = self.run_command(
            flavor,
            *('--os-cloud', 'mine', 'set', 'small'),
            *('--workload', 'latency'),
        )
        self.assertEqual(1, status)
        self.assert_line(text, "cloud 'mine'", 'role admin')
        self.assertEqual(
            {'vhpc:workload': 'parallel'},
            self.cloud.client('admin').compute(
                'GET', '/flavors/small/os-extra_specs'
            )['extra_specs'],
        )


class VendordataTest(KeystoneCase):
    """What ``nova-vhpc-vendordata`` answers and logs."""

    def post(self, token: str | None, **groups: Options) -> tuple[str, str]:
        """Ask about a server that does not exist.

        :param token: token of the request; None for one of Nova's.
        :param groups: options that are not the agent's.
        :returns: status and what the service logs itself.
        """
        authtoken = {'interface': 'public', **self.options()}
        path = self.write(
            **{
                'DEFAULT': {'log_file': self.folder / 'log'},
                'vhpc_nova': self.options(),
                'keystone_authtoken': authtoken,
                **groups,
            }
        )
        application = vendordata.make(
            vendordata.load(['--config-file', str(path)])
        )
        session = self.cloud.client('nova').session
        body = json.dumps(
            {
                'instance-id': uuidutils.generate_uuid(),
                'project-id': uuidutils.generate_uuid(dashed=False),
            }
        ).encode()
        environ = {
            'REQUEST_METHOD': 'POST',
            'PATH_INFO': '/',
            'SERVER_NAME': 'localhost',
            'SERVER_PORT': '80',
            'wsgi.url_scheme': 'http',
            'CONTENT_LENGTH': str(len(body)),
            'wsgi.input': io.BytesIO(body),
            'HTTP_X_AUTH_TOKEN': token or session.get_token(),
        }
        statuses: list[str] = []
        # Not before: the service sets up its own log.
        with fixtures.FakeLogger('nova_vhpc.vendordata') as log:
            list(
                application(environ, lambda status, _: statuses.append(status))
            )
        return statuses[0], log.output

    def test_right_credentials_answer(self) -> None:
        self.assertEqual(('200 OK', ''), self.post(None))

    def test_refused_token_is_no_fault_of_the_service(self) -> None:
        self.assertEqual(('401 Unauthorized', ''), self.post('nonsense'))

    def test_fault_of_keystone_authtoken_is_503_and_one_line(self) -> None:
        for name, (changes, words) in self.faults().items():
            if name == 'wrong role':
                words = ('identity:validate_token', 'role')
            options = {'interface': 'public', **self.options(**changes)}
            if 'valid_interfaces' in options:
                options['interface'] = options.pop('valid_interfaces')
                words = tuple(
                    word.removeprefix('valid_').replace('faces', 'face')
                    for word in words
                )
            with self.subTest(name):
                status, line = self.post(None, keystone_authtoken=options)
                self.assertEqual('503 Service Unavailable', status)
                self.assert_line(line, '[keystone_authtoken]', *words)

    def test_fault_of_vhpc_nova_is_503_and_one_line(self) -> None:
        for name, (changes, words) in self.faults().items():
            with self.subTest(name):
                status, line = self.post(
                    None, vhpc_nova=self.options(**changes)
                )
                self.assertEqual('503 Service Unavailable', status)
                self.assert_line(line, '[vhpc_nova]', *words)

    def test_unusable_options_stop_the_start(self) -> None:
        for group, changes in (
            ('vhpc_nova', {'valid_interfaces': 'nonsense'}),
            ('vhpc_nova', {'auth_type': 'nonsense'}),
            ('keystone_authtoken', {'auth_type': 'nonsense'}),
            ('keystone_authtoken', {'auth_url': None}),
        ):
            with self.subTest(group=group, **changes):
                path = self.write(
                    **{
                        'vhpc_nova': self.options(),
                        'keystone_authtoken': self.options(),
                        group: self.options(**changes),
                    }
                )
                stderr = io.StringIO()
                with contextlib.redirect_stderr(stderr):
                    status = vendordata.main(['--config-file', str(path)])
                self.assertEqual(2, status)
                self.assert_line(stderr.getvalue(), f'[{group}]')
