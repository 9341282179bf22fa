# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Serve an API of OpenStack by the WSGI server of the standard library.

Run as ``python -m nova_vhpc_lab.stack.wsgi SERVICE PORT``. The services ship
only an application object. Each request has its own thread.
"""

import importlib
import socketserver
import sys
from typing import Any
from wsgiref import simple_server

APPLICATIONS = {
    'glance': 'glance.wsgi.api',
    'keystone': 'keystone.wsgi.api',
    'neutron': 'neutron.wsgi.api',
    'nova': 'nova.wsgi.osapi_compute',
    'placement': 'placement.wsgi.api',
}


class Server(socketserver.ThreadingMixIn, simple_server.WSGIServer):
    """A WSGI server with a thread per request."""

    daemon_threads = True
    request_queue_size = 64

    def server_bind(self) -> None:
        # The base class looks up the host name, which takes seconds if no
        # name server answers.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]
        self.setup_environ()


class Handler(simple_server.WSGIRequestHandler):
    """A request handler without log and name look-ups."""

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def address_string(self) -> str:
        return str(self.client_address[0])


def main() -> None:
    """Run the program."""
    name, port = sys.argv[1], int(sys.argv[2])
    # The applications parse sys.argv as their own options.
    sys.argv[1:] = []
    application = importlib.import_module(APPLICATIONS[name]).application
    server = Server(('127.0.0.1', port), Handler)
    server.set_app(application)
    server.serve_forever()


if __name__ == '__main__':
    main()
