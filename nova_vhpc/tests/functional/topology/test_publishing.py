# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""The publish worker with real bridges and a real Placement on a port."""

import logging
import socketserver
import threading
import time
import wsgiref.simple_server
from collections.abc import Callable
from typing import Any

import fixtures
from oslo_config import cfg
from placement.tests.functional.fixtures import placement as fixture

from nova_vhpc.agent.uplinks import claims, publish_worker
from nova_vhpc.conf import placement as placement_opts
from nova_vhpc.conf import topology as topology_opts
from nova_vhpc.tests.functional.topology import links, test_publisher
from nova_vhpc.topology import model
from nova_vhpc_lab.testbed.patience import PATIENCE_S


class _Handler(wsgiref.simple_server.WSGIRequestHandler):
    def log_message(self, *args: Any) -> None:
        pass


class _Server(wsgiref.simple_server.WSGIServer):
    allow_reuse_address = True


class Served:
    """A WSGI application on a TCP port; can be stopped and started again."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.port = 0
        self._server: socketserver.BaseServer | None = None

    def start(self) -> None:
        server = wsgiref.simple_server.make_server(
            '127.0.0.1', self.port, self._app, _Server, _Handler
        )
        self.port = server.server_port
        self._server = server
        threading.Thread(
            target=server.serve_forever, args=(0.02,), daemon=True
        ).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


def serve(test: test_publisher.PlacementCase) -> Served:
    """Serve a test's Placement on a port; each client is the admin."""
    app = fixture.deploy.loadapp(test.placement.conf_fixture.conf)

    def authenticated(environ: dict[str, Any], start: Any) -> Any:
        environ['HTTP_X_AUTH_TOKEN'] = 'admin'
        return app(environ, start)

    served = Served(authenticated)
    served.start()
    test.addCleanup(served.stop)
    return served


def make_conf(endpoint: str, **options: object) -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    placement_opts.register_opts(conf)
    topology_opts.register_opts(conf)
    conf([], project='nova-vhpc', default_config_files=[])
    conf.set_override('auth_type', 'none', 'placement')
    conf.set_override('endpoint_override', endpoint, 'placement')
    conf.set_override('poll_interval', 1, 'vhpc_topology')
    conf.set_override('node', 'cn1', 'vhpc_topology')
    for name, value in options.items():
        conf.set_override(name, value, 'vhpc_topology')
    return conf


class PublishWorkerTest(test_publisher.PlacementCase):
    def setUp(self) -> None:
        super().setUp()
        self.links = self.useFixture(links.Links())
        self.bridge = self.links.bridge('a')
        self.nic = self.links.uplink('u', self.bridge)
        self.uplink = model.Uplink(
            self.nic, self.bridge, model.BridgeKind.SHARED, 10000
        )
        self.log = self.useFixture(
            fixtures.FakeLogger('nova_vhpc', level=logging.INFO)
        )

    def serve(self) -> None:
        # The server's only thread also serialises requests, which Placement's
        # in-memory test database needs.
        self.served = serve(self)
        self.endpoint = f'http://127.0.0.1:{self.served.port}'

    def make_worker(self, **options: object) -> publish_worker.PublishWorker:
        options.setdefault('bridges', [f'{self.bridge}:shared:slots=3'])
        options.setdefault('nic_patterns', [self.nic])
        worker = publish_worker.PublishWorker(
            make_conf(f'http://127.0.0.1:{self.served.port}', **options),
            'a-host',
        )
        self.addCleanup(worker.stop)
        return worker

    def wait_for(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not condition():
            self.assertLess(time.monotonic(), end, self.log.output)
            time.sleep(0.02)

    def state(self, worker: publish_worker.PublishWorker) -> str:
        return str(worker.status()['state'])

    def count(self, text: str) -> int:
        return sum(text in line for line in self.log.output.splitlines())

    def test_slots_are_reserved_while_the_link_is_down(self) -> None:
        worker = self.make_worker()
        worker.start()
        self.wait_for(lambda: self.state(worker) == 'published')
        self.assertEqual(
            [f'cn1:vhpc:{self.bridge}:{self.nic}'],
            [name for name in self.names() if name != 'cn1:vhpc'],
        )

        def reserved() -> int:
            slots: int = self.inventory(self.uplink, model.UPLINK)['reserved']
            return slots

        self.links.set(self.nic + 'x', state='down')
        self.wait_for(lambda: reserved() == 3)
        self.assertFalse(worker.status()['uplinks'][0]['up'])
        self.links.set(self.nic + 'x', state='up')
        self.wait_for(lambda: reserved() == 0)
        worker.stop()
        away = worker.withdrawal()
        self.assertEqual((), away.move_out().kept)
        away.delete()
        self.assertEqual([], self.names())

    @staticmethod
    def claimed_by(
        server: str, worker: publish_worker.PublishWorker
    ) -> tuple[str, ...]:
        """Return the bridges of the uplinks that a server has claimed."""
        uplinks = claims.UplinkClaims(worker.publication).uplinks(server)
        return tuple(uplink.bridge for uplink in uplinks or ())

    def test_claimed_bridge_stays_known_when_its_nic_is_renamed(self) -> None:
        worker = self.make_worker(nic_patterns=['*'])
        worker.start()
        self.wait_for(lambda: self.state(worker) == 'published')
        server = self.claim(self.uuid(self.uplink))
        self.assertEqual((self.bridge,), self.claimed_by(server, worker))
        self.links.delete(self.nic)
        self.links.uplink('n', self.bridge)
        self.wait_for(lambda: worker.status()['reserved'])
        self.assertEqual((self.bridge,), self.claimed_by(server, worker))

    def test_uplinks_are_published_once_placement_is_back(self) -> None:
        self.served.stop()
        worker = self.make_worker()
        worker.start()
        self.wait_for(lambda: self.state(worker) == 'placement-away')
        self.served.start()
        self.wait_for(lambda: self.state(worker) == 'published')

        # Away again with a change to publish, for longer than one attempt.
        self.served.stop()
        self.links.set(self.nic + 'x', state='down')
        self.wait_for(lambda: self.state(worker) == 'placement-away')
        time.sleep(3)
        self.served.start()
        self.wait_for(lambda: self.state(worker) == 'published')
        self.assertEqual(
            3, self.inventory(self.uplink, model.UPLINK)['reserved']
        )
        self.assertEqual(2, self.count('not published (placement-away)'))
        self.assertEqual(2, self.count('Published 1 uplinks'))
        self.assertEqual(0, self.count('Traceback'))

    def test_uplinks_are_published_once_the_compute_node_exists(self) -> None:
        worker = self.make_worker(node='cn2')
        worker.start()
        self.wait_for(lambda: self.state(worker) == 'no-compute-node')
        self.nova('POST', '/resource_providers', name='cn2')
        self.wait_for(lambda: self.state(worker) == 'published')
        self.assertEqual('cn2', worker.status()['node'])

    def test_compute_node_is_found_by_compute_id_file(self) -> None:
        path = self.useFixture(fixtures.TempDir()).join('compute_id')
        with open(path, 'w') as file:
            file.write(self.root_uuid + '\n')
        worker = self.make_worker(node=None, compute_id_file=path)
        worker.start()
        self.wait_for(lambda: self.state(worker) == 'published')
        self.assertEqual('cn1', worker.status()['node'])

    def test_stamp_is_renewed_periodically(self) -> None:
        worker = self.make_worker(stamp_interval=1)
        real, model.stamp = model.stamp, lambda _: 7
        self.addCleanup(setattr, model, 'stamp', real)
        worker.start()
        self.wait_for(lambda: self.state(worker) == 'published')
        marker = model.marker_uuid('cn1')

        def stamp() -> int:
            inventories = self.client.inventories(marker)[1]
            total: int = inventories[model.STAMP]['total']
            return total

        self.assertEqual(7, stamp())
        model.stamp = real
        self.wait_for(lambda: stamp() > 7)

    def test_missing_bridge_is_logged_once(self) -> None:
        worker = self.make_worker(
            bridges=['nosuchbr:shared', f'{self.bridge}:shared']
        )
        worker.start()
        self.wait_for(lambda: self.state(worker) == 'published')
        self.links.set(self.nic + 'x', state='down')
        self.wait_for(lambda: not worker.status()['uplinks'][0]['up'])
        self.assertEqual(1, self.count('nosuchbr does not exist'))

    def test_worker_stays_off_without_publish(self) -> None:
        worker = self.make_worker(publish=False)
        worker.start()
        self.assertEqual('off', self.state(worker))
