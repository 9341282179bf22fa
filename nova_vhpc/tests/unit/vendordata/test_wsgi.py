# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The app asked by Nova's own client, and by those who should not ask."""

import io
import json
import pathlib
from types import SimpleNamespace

import fixtures
from keystonemiddleware import fixture as ks_fixture
from nova import conf as nova_conf
from nova.api.metadata import vendordata_dynamic
from oslo_config import cfg
from oslo_utils import uuidutils

from nova_vhpc import http_limits
from nova_vhpc.conf import vendordata as vendordata_conf
from nova_vhpc.tests import base, served
from nova_vhpc.tests.unit.vendordata import fakes
from nova_vhpc.vendordata import nova, shared_answers, wsgi


class Source:
    """Knows one cluster of one project."""

    def __init__(self):
        self.cluster_ = fakes.cluster(
            [fakes.member(1, 'h1'), fakes.member(2, 'h1')]
        )
        self.error = None

    def group_of(self, server_uuid, project_id):
        """As nova.NovaClusterSource.group_of."""
        if self.error is not None:
            raise self.error
        if project_id != fakes.PROJECT or server_uuid == fakes.uuid(7):
            raise nova.NotMember(server_uuid)
        return fakes.GROUP

    def cluster(self, group_uuid, project_id):
        """As nova.NovaClusterSource.cluster."""
        return self.cluster_


def answers(source):
    return shared_answers.SharedAnswers(source, ttl_s=0.0)


def application(source, roles):
    return wsgi.Application(answers(source), roles)


def _environ(body, roles='service', method='POST'):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return {
        'REQUEST_METHOD': method,
        'CONTENT_LENGTH': str(len(data)),
        'HTTP_X_ROLES': roles,
        'wsgi.input': io.BytesIO(data),
    }


REQUEST = {'instance-id': fakes.uuid(1), 'project-id': fakes.PROJECT}


class ApplicationTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.source = Source()
        self.app = application(self.source, {'service'})

    def call(self, environ):
        statuses = []

        def start_response(status, headers):
            statuses.append(status)
            self.headers = dict(headers)

        (data,) = self.app(environ, start_response)
        return int(statuses[0].split()[0]), json.loads(data)

    def test_a_member_is_answered(self):
        status, body = self.call(_environ(REQUEST))
        self.assertEqual(200, status)
        self.assertEqual(0, body['rank'])

    def test_other_servers_get_an_empty_answer(self):
        for change in (
            {'instance-id': fakes.uuid(7)},
            {'project-id': 'somebody-else'},
        ):
            self.assertEqual(
                (200, {}), self.call(_environ({**REQUEST, **change}))
            )

    def test_bad_requests_say_what_is_wrong(self):
        for body in (
            b'',
            b'{',
            b'[]',
            b'[' * 200_000,
            b'{"instance-id": 1}',
            {**REQUEST, 'instance-id': '../x'},
            {**REQUEST, 'project-id': 'a&all_tenants=1'},
            {**REQUEST, 'project-id': ['a']},
            b'x' * (http_limits.MAX_BODY_BYTES + 1),
        ):
            status, answer = self.call(_environ(body))
            self.assertEqual(400, status, repr(body)[:40])
            self.assertTrue(answer['error'])

    def test_a_token_without_the_role_is_refused(self):
        status, answer = self.call(_environ(REQUEST, roles='member,reader'))
        self.assertEqual(403, status)
        self.assertIn('service', answer['error'])

    def test_noauth_answers_only_clients_of_the_same_host(self):
        """Other servers than our own may listen anywhere."""
        self.app = application(self.source, None)
        xff, real, forwarded, via = (
            'HTTP_X_FORWARDED_FOR',
            'HTTP_X_REAL_IP',
            'HTTP_FORWARDED',
            'HTTP_VIA',
        )
        local = {'REMOTE_ADDR': '127.0.0.1'}
        for headers, expected in (
            ({}, 200),
            ({'REMOTE_ADDR': ''}, 200),
            (local, 200),
            ({'REMOTE_ADDR': '::1'}, 200),
            ({'REMOTE_ADDR': '::ffff:127.0.0.1'}, 200),
            ({'REMOTE_ADDR': '10.0.0.7'}, 403),
            ({'REMOTE_ADDR': '::ffff:10.0.0.7'}, 403),
            ({'REMOTE_ADDR': 'unknown'}, 403),
            (local | {xff: '10.0.0.7'}, 403),
            (local | {xff: '127.0.0.1, 10.0.0.7'}, 403),
            (local | {xff: '127.0.0.1'}, 200),
            (local | {real: '10.0.0.7'}, 403),
            (local | {real: '::1', xff: '10.0.0.7'}, 403),
            (local | {real: '127.0.0.1', via: '1.1 proxy'}, 200),
            (local | {'HTTP_X_CLIENT_IP': '10.0.0.7'}, 403),
            (local | {forwarded: 'for=10.0.0.7'}, 403),
            (local | {forwarded: 'For="[2001:db8::7]:4711"'}, 403),
            (local | {forwarded: 'for=_hidden;proto=https'}, 403),
            (local | {forwarded: 'for=127.0.0.1, for=10.0.0.7'}, 403),
            (local | {forwarded: 'for="[::1]";proto=http'}, 200),
            (local | {forwarded: 'proto=https'}, 403),
            # A proxy that does not say for whom it asks.
            (local | {via: '1.1 proxy'}, 403),
            (local | {'HTTP_X_FORWARDED_PROTO': 'https'}, 403),
        ):
            for method in ('GET', 'POST'):
                environ = _environ(REQUEST, method=method) | headers
                status, _ = self.call(environ)
                self.assertEqual(expected, status, headers)

    def test_nova_away_is_a_503(self):
        self.source.error = RuntimeError('no route')
        status, answer = self.call(_environ(REQUEST))
        self.assertEqual(503, status)
        self.assertNotIn('no route', answer['error'])
        self.assertIn('Retry-After', self.headers)

    def test_get_says_that_it_lives(self):
        status, _ = self.call(_environ(b'', method='GET'))
        self.assertEqual(200, status)
        self.assertEqual(405, self.call(_environ(b'', method='PUT'))[0])


class NovaClientTest(base.TestCase):
    """Nova's own dynamic vendordata driver against the listening app."""

    def ask(self, url, token=None):
        nova_conf.CONF.set_override(
            'vendordata_dynamic_targets', [f'vhpc@{url}'], 'api'
        )
        self.addCleanup(
            nova_conf.CONF.clear_override, 'vendordata_dynamic_targets', 'api'
        )
        driver = vendordata_dynamic.DynamicVendorData(
            SimpleNamespace(
                project_id=fakes.PROJECT,
                uuid=fakes.uuid(1),
                image_ref='image',
                user_data=None,
                hostname='member-1',
                metadata={},
                system_metadata={},
            )
        )
        if token is not None:
            from keystoneauth1 import session, token_endpoint

            driver.session = session.Session(token_endpoint.Token(url, token))
        return driver.get()['vhpc']

    def test_noauth(self):
        url = self.useFixture(served.Served(application(Source(), None))).url
        answer = self.ask(url)
        self.assertEqual(fakes.GROUP, answer['cluster']['id'])
        self.assertIn('10.1.0.2 slots=2', answer['hostfile']['openmpi'])

    def test_unsafe_configuration_is_refused_by_the_library(self):
        for options, reason in (
            ({}, 'no token can be checked without auth_type'),
            (
                {'auth_strategy': 'noauth', 'listen_host': '0.0.0.0'},
                'only a loopback address',
            ),
        ):
            conf = cfg.ConfigOpts()
            vendordata_conf.register_opts(conf)
            conf([], default_config_files=[])
            for name, value in options.items():
                conf.set_override(name, value, 'vhpc_vendordata')
            error = self.assertRaises(
                ValueError, wsgi.make_application, conf, answers(Source())
            )
            self.assertIn(reason, str(error))

    def test_keystone(self):
        conf = cfg.ConfigOpts()
        vendordata_conf.register_opts(conf)
        file = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'conf')
        file.write_text(
            '[keystone_authtoken]\n'
            'www_authenticate_uri = http://127.0.0.1:9/identity\n'
            'auth_type = password\nauth_url = http://127.0.0.1:9/identity\n'
            'username = nova-vhpc\npassword = x\n'
        )
        conf(['--config-file', str(file)])
        tokens = self.useFixture(ks_fixture.AuthTokenFixture())
        service, tenant = uuidutils.generate_uuid(), uuidutils.generate_uuid()
        tokens.add_token_data(
            token_id=service, project_id='service', role_list=['service']
        )
        tokens.add_token_data(
            token_id=tenant, project_id=fakes.PROJECT, role_list=['member']
        )
        # The fixture stands in for Keystone's answers only; the middleware
        # that checks tokens is the real one.
        app = wsgi.make_application(conf, answers(Source()))
        url = self.useFixture(served.Served(app)).url
        self.assertEqual({}, self.ask(url))
        self.assertEqual({}, self.ask(url, token='wrong'))
        self.assertEqual({}, self.ask(url, token=tenant))
        answer = self.ask(url, token=service)
        self.assertEqual(0, answer['rank'])
