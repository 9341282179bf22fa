# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""RabbitMQ as a fixture: a broker of one's own, or a part of a shared one."""

import atexit
import pathlib
import tempfile
from collections.abc import Iterator

import fixtures

from nova_vhpc_lab.testbed import rabbitmq

_VIRTUAL_HOSTS = tuple(f'test{number}' for number in range(16))

_DIRECTORY = pathlib.Path(tempfile.gettempdir())
"""Read at import: a test's own directory goes with the test."""


class RabbitMQFixture(fixtures.Fixture):
    """Starts a broker of its own; ``broker`` can kill and restart it."""

    def _setUp(self) -> None:
        self.broker = rabbitmq.PrivateRabbitMQ()
        self.broker.__enter__()
        self.addCleanup(self.broker.close)

    @property
    def url(self) -> str:
        """Transport URL for oslo.messaging."""
        return self.broker.url


class VirtualHostFixture(fixtures.Fixture):
    """Has a virtual host that no other test uses, of this process's broker.

    For tests that only send messages: a broker takes seconds to start.
    """

    def _setUp(self) -> None:
        self._broker, self.name = next(_virtual_hosts)

    @property
    def url(self) -> str:
        """Transport URL for oslo.messaging."""
        return self._broker.url + self.name

    def names(self, kind: str) -> list[str]:
        """Return the names of its queues or exchanges."""
        return self._broker.ctl(
            f'list_{kind}', '-p', self.name, 'name', '--no-table-headers'
        ).splitlines()


def _unused() -> Iterator[tuple[rabbitmq.PrivateRabbitMQ, str]]:
    """Yield a broker and one of its virtual hosts."""
    while True:
        broker = rabbitmq.PrivateRabbitMQ(_DIRECTORY, _VIRTUAL_HOSTS)
        broker.__enter__()
        atexit.register(broker.close)
        for name in _VIRTUAL_HOSTS:
            yield broker, name


_virtual_hosts = _unused()
