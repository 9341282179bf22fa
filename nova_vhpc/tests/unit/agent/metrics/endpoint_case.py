# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""What the tests of the metrics endpoint share."""

import time

import fixtures
from oslotest import base

from nova_vhpc.agent.metrics import endpoint
from nova_vhpc.tests.unit.agent.daemon import status_document


class EndpointCase(base.BaseTestCase):
    """Starts endpoints that serve the metrics of an agent without VMs."""

    def setUp(self) -> None:
        super().setUp()
        self.useFixture(
            fixtures.MockPatchObject(endpoint, 'MAX_BACKOFF_S', 0.01)
        )

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
        end_s = time.monotonic() + 60
        while made.status()['state'] != state:
            self.assertLess(time.monotonic(), end_s, made.status())
            time.sleep(0.01)
