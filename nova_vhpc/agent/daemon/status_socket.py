# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""The status socket: serves the status document to local programs.

A client sends nothing. If file permissions let it connect, it gets the status
as one JSON document, and the connection is closed.
"""

import json
import logging
import os
import pathlib
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

LOG = logging.getLogger(__name__)

PAUSE_S = 0.2
"""Pause after a failed ``accept``: without free file descriptors it would
fail again at once, in a busy loop."""

SOCKET_NAME = 'agent.sock'


def socket_path(run_path: str) -> str:
    """Return the path of the status socket."""
    return str(pathlib.Path(run_path, SOCKET_NAME))


class StatusServer:
    """Serves the status document on a local socket.

    :param path: path of the socket.
    :param mode: file mode of the socket.
    :param status: returns the document.
    """

    def __init__(
        self, path: str, mode: int, status: Callable[[], dict[str, Any]]
    ) -> None:
        self.path = path
        self._mode = mode
        self._status = status
        self._socket: socket.socket | None = None

    def start(self) -> None:
        """Listen, in a thread.

        :raises OSError: the socket cannot be created.
        """
        pathlib.Path(self.path).unlink(missing_ok=True)
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Without this, any user could connect before the mode is set.
        mask = os.umask(0o177)
        try:
            server.bind(self.path)
        finally:
            os.umask(mask)
        os.chmod(self.path, self._mode)
        server.listen(8)
        self._socket = server
        threading.Thread(
            target=self._serve, name='status', daemon=True
        ).start()

    def stop(self) -> None:
        """Close and remove the socket."""
        if self._socket is not None:
            # Cleared before the close, so that the thread can tell the stop
            # from a failure.
            server, self._socket = self._socket, None
            server.close()
            pathlib.Path(self.path).unlink(missing_ok=True)

    def _serve(self) -> None:
        server = self._socket
        assert server is not None
        failed = False
        while self._socket is server:
            try:
                client, _ = server.accept()
            except OSError as error:
                if self._socket is not server:
                    return
                if not failed:
                    failed = True
                    LOG.warning(
                        'The status socket does not answer; will retry: %s',
                        error,
                    )
                time.sleep(PAUSE_S)
                continue
            if failed:
                failed = False
                LOG.info('The status socket answers again')
            with client:
                try:
                    client.settimeout(2.0)
                    client.sendall(json.dumps(self._status()).encode() + b'\n')
                except OSError:
                    continue
                except Exception:
                    LOG.exception('Making the status document failed')


def fetch(path: str, timeout_s: float = 5.0) -> dict[str, Any]:
    """Return the status document of a running agent.

    :param path: path of the status socket.
    :param timeout_s: longest time to wait for the answer, in seconds.
    :raises OSError: no agent listens, or file permissions forbid it.
    :raises ValueError: the answer is incomplete.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(timeout_s)
        client.connect(path)
        parts = []
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            part = client.recv(65536)
            if not part:
                break
            parts.append(part)
    answer: dict[str, Any] = json.loads(b''.join(parts))
    return answer
