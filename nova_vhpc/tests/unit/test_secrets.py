# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""No secret reaches a log."""

import http.server
import logging
import pathlib
import threading

import fixtures
from oslo_config import cfg

from nova_vhpc.agent import errors
from nova_vhpc.agent.clusters import groups, phase_exchange
from nova_vhpc.agent.uplinks import publish_worker
from nova_vhpc.conf import control as control_conf
from nova_vhpc.conf import nova_api, opts, placement, topology
from nova_vhpc.conf import peers as peers_conf
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.agent.clusters import peer_agents

SECRET = 'k9-do-not-tell'


def _is_secret(name):
    return any(
        word in name
        for word in ('password', 'secret', 'transport_url', 'token')
    ) and not name.endswith(('_id', '_file', '_type'))


class SecretsTest(base.TestCase):
    def test_every_option_that_holds_one_is_marked(self):
        for group, options in opts.list_opts():
            for option in options:
                if _is_secret(option.dest):
                    self.assertTrue(option.secret, (group, option.name))

    def test_logged_options_hide_them(self):
        conf = cfg.ConfigOpts()
        lines = []
        names = []
        for group, options in opts.list_opts():
            name = group if isinstance(group, str) else group.name
            conf.register_opts(options, group=name)
            lines.append(f'[{name}]')
            for option in options:
                if option.required:
                    lines.append(f'{option.dest} = x')
                if _is_secret(option.dest):
                    lines.append(f'{option.dest} = {SECRET}')
                    names.append((name, option.dest))
        self.assertIn(('placement', 'password'), names)
        file = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'conf')
        file.write_text('\n'.join(lines))
        conf(['--config-file', str(file)])
        log = self.useFixture(fixtures.FakeLogger(level=logging.DEBUG))
        conf.log_opt_values(logging.getLogger('secrets'), logging.DEBUG)
        self.assertIn('placement.password', log.output)
        self.assertNotIn(SECRET, log.output)


class _Keystone(http.server.BaseHTTPRequestHandler):
    """Offers v3, and refuses whatever password it is told."""

    def do_GET(self):
        self._send(404, b'{}')

    def do_POST(self):
        body = self.rfile.read(int(self.headers['Content-Length']))
        self.server.told.append(body.decode())
        self._send(401, b'{"error": {"message": "Who are you?"}}')

    def log_message(self, *args):
        """Nothing on stderr."""

    def _send(self, status, body):
        self.send_response(status)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class TroubleTest(base.TestCase):
    """What is logged when a password is refused or makes no sense."""

    def setUp(self):
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger(level=logging.DEBUG))
        self.conf = cfg.ConfigOpts()
        modules = control_conf, nova_api, peers_conf, placement, topology
        for module in modules:
            module.register_opts(self.conf)

    def load(self, text):
        file = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'conf')
        file.write_text(text)
        self.conf(['--config-file', str(file)])

    def wait_for_state(self, part, state):
        self.assertTrue(
            peer_agents.wait_for(lambda: part.status()['state'] == state),
            part.status(),
        )

    def test_a_bad_transport_url(self):
        for url in (
            f'rabbit://u:{SECRET}@h:port/',
            f'rabbit://u:{SECRET}/x@h:5672/',
            f'rabit://u:{SECRET}@h:5672/',
        ):
            self.load(f'[DEFAULT]\ntransport_url = {url}\n')
            talk = phase_exchange.PhaseExchange(
                self.conf, 'host', peer_agents.FakeControl()
            )
            error = self.assertRaises(errors.ConfigError, talk.start)
            self.assertIn('transport_url', str(error))
            self.assertNotIn(SECRET, str(error))
        self.assertNotIn(SECRET, self.log.output)

    def test_keystone_refuses(self):
        server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), _Keystone)
        server.told = []
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        auth = (
            'auth_type = password\n'
            f'auth_url = http://127.0.0.1:{server.server_port}/v3\n'
            f'username = u\npassword = {SECRET}\nproject_name = service\n'
            'user_domain_name = Default\nproject_domain_name = Default\n'
        )
        self.load(f'[placement]\n{auth}[vhpc_nova]\n{auth}')
        for part, state in (
            (groups.Groups(self.conf, 'host'), 'nova-away'),
            (
                publish_worker.PublishWorker(self.conf, 'host'),
                'placement-away',
            ),
        ):
            part.start()
            self.addCleanup(part.stop)
            self.wait_for_state(part, state)
            self.assertNotIn(SECRET, str(part.status()))
        # It was really used.
        self.assertIn(SECRET, ''.join(server.told))
        self.assertIn('401', self.log.output)
        self.assertNotIn(SECRET, self.log.output)
