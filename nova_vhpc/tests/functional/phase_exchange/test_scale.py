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


"""The traffic of 500 agents through one real RabbitMQ."""

import argparse

from oslotest import base

from nova_vhpc.bench import phase_exchange
from nova_vhpc.tests.functional import rabbitmq


class ScaleTest(base.BaseTestCase):
    def test_all_messages_of_500_agents_are_delivered(self) -> None:
        broker = self.useFixture(rabbitmq.RabbitMQFixture())
        parser = argparse.ArgumentParser()
        phase_exchange.add_arguments(parser)
        result = phase_exchange.measure(
            parser.parse_args(['--agents', '500', '--seconds', '4']),
            broker.url,
        )
        print(
            f'500 agents: {result["sent_per_s"]} messages/s sent, '
            f'{result["delivered_per_s"]} delivered, lag '
            f'{result["lag_ms_median"]} ms median, '
            f'{result["lag_ms_p99"]} ms p99'
        )
        self.assertEqual(63, result['clusters'])
        self.assertGreater(result['sent_per_s'], 0)
        # Each host received all statements of its clusters and no others.
        self.assertEqual(1.0, result['delivered_fraction'])
        # A lag does no harm as long as it is shorter than the lease.
        self.assertLess(result['lag_ms_median'], 6000)
