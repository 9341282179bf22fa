# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of :mod:`nova_vhpc.agent.uplinks.publish_worker`."""

import json
import logging
from unittest import mock

import fixtures
from oslo_config import cfg

from nova_vhpc.agent import errors
from nova_vhpc.agent.uplinks import publish_worker
from nova_vhpc.conf import placement as placement_conf
from nova_vhpc.conf import topology as topology_conf
from nova_vhpc.placement import publisher
from nova_vhpc.tests import base, served
from nova_vhpc.tests.unit import waiting

PASSWORD = (
    '[{section}]\n'
    'auth_type = password\n'
    'auth_url = https://127.0.0.1:9/v3\n'
    'username = nova\n'
)


def _keystone(environ, start_response):
    """Refuse every login."""
    url = f'http://{environ["HTTP_HOST"]}/v3'
    version = {
        'id': 'v3.14',
        'status': 'stable',
        'links': [{'rel': 'self', 'href': url}],
    }
    status, body = '200 OK', {'version': version}
    if environ['PATH_INFO'].endswith('/auth/tokens'):
        status, body = '401 Unauthorized', {'error': {'message': 'No.'}}
    start_response(status, [('Content-Type', 'application/json')])
    return [json.dumps(body).encode()]


class _Messages(logging.Handler):
    """Keeps the log's warnings."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.messages = []

    def emit(self, record):
        self.messages.append(record.getMessage())


def _conf(sysfs, files=()):
    conf = cfg.ConfigOpts()
    placement_conf.register_opts(conf)
    topology_conf.register_opts(conf)
    conf([], project='nova-vhpc', default_config_files=files)
    conf.set_override('sysfs', sysfs, 'vhpc_topology')
    return conf


class StatusTest(base.TestCase):
    def test_age_is_independent_of_the_wall_clock(self):
        """NTP may set the clock after a boot."""
        folder = self.useFixture(fixtures.TempDir()).path
        worker = publish_worker.PublishWorker(_conf(folder), 'cn1')
        done = publisher.Published('cn1', (), (), 1)
        with (
            mock.patch.object(worker, '_publish', return_value=done),
            mock.patch.object(publish_worker.time, 'time', return_value=0.0),
        ):
            worker._publish_changes()
        age_s = worker.status()['age_s']
        self.assertGreaterEqual(age_s, 0.0)
        self.assertLess(age_s, 3600.0)


class CredentialsTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.log = _Messages()
        logger = logging.getLogger('nova_vhpc')
        logger.addHandler(self.log)
        self.addCleanup(logger.removeHandler, self.log)

    def message(self, text):
        """Return the one warning that a configuration causes."""
        folder = self.useFixture(fixtures.TempDir())
        file = folder.join('nova-vhpc.conf')
        with open(file, 'w') as opened:
            opened.write(text)
        worker = publish_worker.PublishWorker(
            _conf(folder.path, [file]), 'cn1'
        )
        self.log.messages.clear()
        worker.start()
        self.addCleanup(worker.stop)
        waiting.wait_for(lambda: self.log.messages)
        worker.stop()
        (message,) = self.log.messages
        return message

    def test_missing_credentials_are_reported(self):
        message = self.message('')
        self.assertIn('[placement] has no auth_type', message)
        for option in ('auth_url', 'username', 'password', 'publish'):
            self.assertIn(option, message)

    def test_missing_password_is_reported(self):
        message = self.message(PASSWORD.format(section='placement'))
        self.assertIn('password is a required attribute', message)
        self.assertIn('[placement]', message)

    def test_missing_certificates_are_reported(self):
        message = self.message(
            PASSWORD.format(section='placement')
            + 'password = secret\ncafile = /nowhere\n'
        )
        self.assertIn('/nowhere', message)

    def test_credentials_of_another_section_are_used(self):
        message = self.message(
            '[placement]\nauth_section = service\n'
            + PASSWORD.format(section='service')
            + 'password = secret\n'
        )
        self.assertIn('Unable to establish connection', message)

    def test_wrong_password_is_reported(self):
        url = self.useFixture(served.Served(_keystone)).url
        message = self.message(
            '[placement]\n'
            'auth_type = password\n'
            f'auth_url = {url}v3\n'
            'username = nova\n'
            'user_domain_name = Default\n'
            'password = wrong\n'
        )
        self.assertIn('No. (HTTP 401); are username, password', message)
        self.assertIn('[placement]', message)

    def test_missing_auth_section_is_reported(self):
        message = self.message('[placement]\nauth_section = nowhere\n')
        self.assertIn('auth_section of [placement]', message)

    def test_loopback_interface_is_refused_as_an_uplink(self):
        conf = _conf('/nowhere')
        conf.set_override('nic_patterns', ['veth*', 'lo'], 'vhpc_topology')
        with self.assertRaisesRegex(errors.ConfigError, "nic_patterns: 'lo'"):
            publish_worker.make_discovery(conf)
