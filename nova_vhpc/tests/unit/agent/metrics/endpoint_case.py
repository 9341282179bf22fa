# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""What the tests of the metrics endpoint share."""

import fixtures
from oslotest import base

from nova_vhpc.agent.metrics import endpoint
from nova_vhpc.tests.unit import waiting
from nova_vhpc.tests.unit.agent.daemon import status_document


class EndpointCase(base.BaseTestCase):
    """Starts endpoints that serve the metrics of an agent without VMs."""

    def setUp(self) -> None:
        super().setUp()
        clients = endpoint.Handler.clients
        for target, name, value in (
            (endpoint, 'MAX_BACKOFF_S', 0.01),
            (clients, '_grace_s', 0.1),
            # Only want of places ends slow clients.
            (clients, '_receive_s', 2 * waiting.PATIENCE_S),
            (endpoint.Handler, 'timeout', 2 * waiting.PATIENCE_S),
        ):
            self.useFixture(fixtures.MockPatchObject(target, name, value))

    def listen(
        self,
        port: int = 0,
        host: str = '127.0.0.1',
        **tls: str,
    ) -> endpoint.Metrics:
        made = endpoint.Metrics(status_document.collector())
        made.start(host, port, endpoint.TlsFiles(**tls))
        self.addCleanup(made.stop)
        return made

    def wait_for_state(self, made: endpoint.Metrics, state: str) -> None:
        waiting.wait_for(lambda: made.status()['state'] == state)
