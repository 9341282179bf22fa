# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of :mod:`nova_vhpc.agent.rpc.transport`."""

import contextlib
import io
import logging
import pathlib
import sys
from unittest import mock

import fixtures
from oslotest import base

from nova_vhpc.agent import errors
from nova_vhpc.agent.rpc import transport
from nova_vhpc.cli import ctl
from nova_vhpc.tests.unit.agent.clusters import peer_agents

SECRET = 'k9secret'


class TransportTest(base.BaseTestCase):
    def conf(self, url: str) -> object:
        conf = peer_agents.make_conf('fake://')
        conf.set_override('transport_url', url)
        return conf

    def test_error_about_a_bad_url_hides_the_password(self) -> None:
        for url in (
            f'rabbit://u:{SECRET}@h:port/',
            f'rabbit://u:{SECRET}/x@h:5672/',
            f'rabit://u:{SECRET}@h:5672/',
            SECRET,
            f'rabbit://u:{SECRET}@[::1/',
        ):
            error = self.assertRaises(
                errors.ConfigError, transport.get_transport, self.conf(url)
            )
            self.assertIn('transport_url', str(error))
            self.assertNotIn(SECRET, str(error))

            # nova-vhpc-ctl prints the same error to the operator.
            path = self.useFixture(fixtures.TempDir()).join('conf')
            pathlib.Path(path).write_text(f'[DEFAULT]\ntransport_url={url}\n')
            stderr = io.StringIO()
            with contextlib.redirect_stderr(stderr):
                code = ctl.main(['--config-file', path, 'status'])
            self.assertEqual(2, code)
            self.assertEqual(1, len(stderr.getvalue().splitlines()))
            self.assertNotIn(SECRET, stderr.getvalue())

    def test_error_names_the_missing_library_of_a_driver(self) -> None:
        module = 'oslo_messaging._drivers.impl_kafka'
        with mock.patch.dict('sys.modules', {'confluent_kafka': None}):
            sys.modules.pop(module, None)
            error = self.assertRaises(
                errors.ConfigError,
                transport.get_transport,
                self.conf(f'kafka://u:{SECRET}@h/'),
            )
        self.assertIn('[DEFAULT]transport_url: its driver', str(error))
        self.assertIn('confluent_kafka', str(error))
        self.assertNotIn(SECRET, str(error))

    def test_rabbit_options_are_set_for_rabbit_only(self) -> None:
        made = transport.get_transport(self.conf('rabbit://h/'))
        self.addCleanup(made.cleanup)
        options = made._driver.conf.oslo_messaging_rabbit
        self.assertEqual(64, options.rabbit_qos_prefetch_count)
        self.assertTrue(options.amqp_auto_delete)

    def test_error_of_a_broker_names_its_address_only(self) -> None:
        url = f'rabbit://u:{SECRET}@h1,u:{SECRET}@[2001:db8::1]:1/'
        made = transport.get_transport(self.conf(url))
        self.addCleanup(made.cleanup)
        refused = ConnectionRefusedError(111, 'Connection refused')
        self.assertEqual(
            '[Errno 111] Connection refused (transport_url: h1:5672, '
            '[2001:db8::1]:1)',
            transport.broker_error(made, refused),
        )

    def test_options_of_the_operator_are_kept(self) -> None:
        conf = peer_agents.make_conf('rabbit://h/?rabbit_qos_prefetch_count=7')
        conf.set_override('rabbit_quorum_queue', True, 'oslo_messaging_rabbit')
        made = transport.get_transport(conf)
        self.addCleanup(made.cleanup)
        options = made._driver.conf.oslo_messaging_rabbit
        self.assertEqual(7, options.rabbit_qos_prefetch_count)
        self.assertFalse(options.amqp_auto_delete)


class HushTest(base.BaseTestCase):
    def test_first_bad_message_is_logged_in_one_line(self) -> None:
        transport.hush()
        log = self.useFixture(fixtures.FakeLogger(level=logging.INFO))
        once = transport._Once()
        logger = logging.getLogger('not.oslo')
        logger.addFilter(once)
        self.addCleanup(logger.removeFilter, once)
        for number in range(3):
            try:
                raise LookupError(f'message {number}')
            except LookupError:
                logger.exception('Exception during message handling')
        (line,) = log.output.splitlines()
        self.assertIn("LookupError('message 0')", line)
