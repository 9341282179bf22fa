# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""The traffic of 500 agents through one real RabbitMQ."""

import argparse

from oslotest import base

from nova_vhpc.tests.functional import rabbitmq
from nova_vhpc_lab.bench import phase_exchange


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
