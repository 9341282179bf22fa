# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""A private RabbitMQ as a fixture."""

import fixtures

from nova_vhpc_lab.testbed import rabbitmq


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
