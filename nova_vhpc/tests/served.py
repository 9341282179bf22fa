# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A WSGI application behind a real port."""

import threading
import wsgiref.simple_server
from typing import Any

import fixtures

_POLL_S = 0.02
"""How often it looks whether it is to end."""


class _Quiet(wsgiref.simple_server.WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not told on stderr."""


class Served(fixtures.Fixture):
    """Serves an application on the loopback until the test ends.

    :ivar url: where it answers.
    """

    def __init__(self, app: Any) -> None:
        super().__init__()
        self._app = app

    def _setUp(self) -> None:
        server = wsgiref.simple_server.make_server(
            '127.0.0.1', 0, self._app, handler_class=_Quiet
        )
        thread = threading.Thread(
            target=server.serve_forever, args=(_POLL_S,), daemon=True
        )
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.url = f'http://127.0.0.1:{server.server_port}/'
