# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.


"""What the tests of the metrics endpoint share."""

import time

import fixtures
from oslotest import base

from nova_vhpc.agent.daemon import metrics, metrics_access
from nova_vhpc.tests.unit.agent.daemon import status_document


class EndpointCase(base.BaseTestCase):
    """Starts endpoints that serve the metrics of an agent without VMs."""

    def setUp(self) -> None:
        super().setUp()
        self.useFixture(
            fixtures.MockPatchObject(metrics, 'MAX_BACKOFF_S', 0.01)
        )

    def listen(
        self,
        port: int = 0,
        host: str = '127.0.0.1',
        access: metrics_access.Access | None = None,
    ) -> metrics.Metrics:
        made = metrics.Metrics(status_document.collector())
        made.start(host, port, access or metrics_access.Access())
        self.addCleanup(made.stop)
        return made

    def wait_for_state(self, made: metrics.Metrics, state: str) -> None:
        end_s = time.monotonic() + 60
        while made.status()['state'] != state:
            self.assertLess(time.monotonic(), end_s, made.status())
            time.sleep(0.01)
