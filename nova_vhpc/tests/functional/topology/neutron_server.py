# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A real Neutron with ML2/OVS that serves its API to a test.

It has neither Keystone nor RabbitMQ nor agents: an agent's report is given to
the callback that takes it from RabbitMQ elsewhere. Started by :class:`Neutron`
in a process of its own, as Neutron's modules keep global state.
"""

import contextlib
import json
import os
import pathlib
import socketserver
import subprocess
import sys
import time
import wsgiref.simple_server

import fixtures
import requests

from nova_vhpc_lab.testbed.patience import PATIENCE_S

CONFIGURATION = """[DEFAULT]
core_plugin = ml2
service_plugins =
auth_strategy = noauth
transport_url = fake:/
state_path = {path}
notify_nova_on_port_status_changes = False
notify_nova_on_port_data_changes = False
api_paste_config = {paste}
[database]
connection = sqlite:///{path}/neutron.db
[ml2]
mechanism_drivers = openvswitch
type_drivers = local,flat,vlan
[ml2_type_vlan]
network_vlan_ranges = hpc0,hpc1
[oslo_concurrency]
lock_path = {path}
"""

REPORT = {
    'binary': 'neutron-openvswitch-agent',
    'topic': 'N/A',
    'agent_type': 'Open vSwitch agent',
    'start_flag': True,
}


class _Server(socketserver.ThreadingMixIn, wsgiref.simple_server.WSGIServer):
    daemon_threads = True


class Neutron(fixtures.Fixture):
    """Starts Neutron; ``url`` is where it serves.

    :param reports: ``configurations`` of Open vSwitch agents, by host.
    """

    def __init__(self, reports: dict[str, dict[str, object]]) -> None:
        self._reports = reports

    def _setUp(self) -> None:
        self.path = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        paste = pathlib.Path(sys.prefix, 'etc/neutron/api-paste.ini')
        self._file('neutron.conf').write_text(
            CONFIGURATION.format(path=self.path, paste=paste)
        )
        self._file('reports').write_text(json.dumps(self._reports))
        self._process = subprocess.Popen(
            [sys.executable, '-P', __file__, str(self.path)],
            env={
                **os.environ,
                'ASGI_WORKERS': '1',
                'OS_NEUTRON_CONFIG_DIR': str(self.path),
                'OS_NEUTRON_CONFIG_FILES': 'neutron.conf',
                'TMPDIR': str(self.path),
            },
            stdout=self._file('log').open('wb'),
            stderr=subprocess.STDOUT,
        )
        self.addCleanup(self.kill)
        end_s = time.monotonic() + PATIENCE_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end_s:
                raise RuntimeError(self._file('log').read_text()[-3000:])
            time.sleep(0.1)

    def kill(self) -> None:
        """Kill Neutron."""
        self._process.kill()
        self._process.wait()

    def _file(self, name: str) -> pathlib.Path:
        return self.path / name

    def _answers(self) -> bool:
        with contextlib.suppress(OSError, requests.RequestException):
            self.url = f'http://127.0.0.1:{self._file("port").read_text()}'
            return requests.get(f'{self.url}/v2.0/agents', timeout=60).ok
        return False


def serve(path: pathlib.Path) -> None:
    """Create the database, take the reports, and serve the API."""
    # The application reads this process' arguments.
    del sys.argv[1:]
    from neutron.db.migration.models import head
    from sqlalchemy import create_engine

    head.get_metadata().create_all(
        create_engine(f'sqlite:///{path}/neutron.db')
    )
    from neutron.db import agents_db
    from neutron.wsgi.api import application
    from neutron_lib import context
    from oslo_utils import timeutils

    callback = agents_db.AgentExtRpcCallback()
    for host, configurations in json.loads(
        (path / 'reports').read_text()
    ).items():
        callback.report_state(
            context.get_admin_context(),
            agent_state={
                'agent_state': {
                    **REPORT,
                    'host': host,
                    'configurations': configurations,
                }
            },
            time=timeutils.utcnow().isoformat(),
        )
    server = wsgiref.simple_server.make_server(
        '127.0.0.1', 0, application, _Server
    )
    (path / 'port').write_text(str(server.server_port))
    server.serve_forever()


if __name__ == '__main__':
    serve(pathlib.Path(sys.argv[1]))
