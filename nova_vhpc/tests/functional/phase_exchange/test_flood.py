# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""The phase exchange while the broker is flooded, or blocked by an alarm."""

import subprocess
import sys
import time

from nova_vhpc.tests.functional.phase_exchange import flood, test_rabbitmq
from nova_vhpc.tests.unit.agent.clusters import peer_agents as agents

IO, QUIET = agents.IO, agents.QUIET
COUNT = 2500
"""Messages of each kind."""


class FloodTest(test_rabbitmq.OwnBrokerTestCase):
    def test_hosts_decide_on_while_the_broker_is_flooded_or_blocked(
        self,
    ) -> None:
        a, b = self.pair()
        self.wait_for_both('up', a, b)
        self.check_flood(a, b)
        self.check_alarm(a, b)
        for agent in (a, b):
            # The tick's calls never waited for the broker.
            self.assertLess(agent.slowest_s, 0.5)
        self.assertEqual(0, self.count('Traceback'))

    def check_flood(self, a: agents.Agent, b: agents.Agent) -> None:
        """Each host goes on to decide; memory and log stay small."""
        before = self.rss_mib()
        most = 0
        flooding = subprocess.Popen(
            [
                *(sys.executable, '-m', flood.__name__),
                *(self.url, str(COUNT)),
            ],
            stdin=subprocess.DEVNULL,
        )
        self.addCleanup(flooding.kill)
        while flooding.poll() is None:
            a.say(c1=IO)
            self.assertTrue(a.io('c1'))
            a.say(c1=QUIET)
            most = max(most, *self.unacknowledged())
            time.sleep(0.5)
        self.assertEqual(0, flooding.returncode)
        a.say(c1=IO)
        begin = time.monotonic()
        self.wait_for(lambda: b.io('c1'))
        grown = self.rss_mib() - before
        print(
            f'flood of {COUNT * len(flood.KINDS)} messages: at most {most} '
            f'in an agent, {grown} MiB more; a phase was received '
            f'{time.monotonic() - begin:.1f} s after its end'
        )
        # The other messages wait in the broker.
        self.assertLessEqual(most, 64)
        self.assertLess(grown, 100)
        self.assertLessEqual(self.count('not for this version'), 1)
        self.assertLessEqual(self.count('Ignoring an invalid message'), 2)

    def check_alarm(self, a: agents.Agent, b: agents.Agent) -> None:
        """RabbitMQ's memory alarm blocks senders, not receivers."""
        self.wait_for_both('up', a, b)
        logged_before = self.count('The message bus is away')
        self.broker.ctl('set_vm_memory_high_watermark', '0.00001')
        # B sends nothing but its own echoes, and notices the alarm by them.
        self.wait_for_both('down', a, b)
        self.assertIn('alarm', a.phase_exchange.status()['detail'])
        sent = a.phase_exchange.status()['sent']
        for _ in range(10):
            a.say(c1=IO)
            a.say(c1=QUIET)
            time.sleep(0.05)
        a.say(c1=IO)
        self.assertTrue(a.io('c1'))
        # Statements do not queue behind the message that waits.
        self.assertLessEqual(a.phase_exchange.status()['sent'], sent + 1)
        self.wait_for(lambda: not b.io('c1'))
        self.broker.ctl('set_vm_memory_high_watermark', '0.4')
        self.wait_for(lambda: b.io('c1'))
        self.wait_for_both('up', a, b)
        logged = self.count('The message bus is away') - logged_before
        self.assertLessEqual(logged, 2)

    def wait_for_both(self, state: str, *both: agents.Agent) -> None:
        for agent in both:
            self.wait_for_state(state, agent)

    def unacknowledged(self) -> list[int]:
        """Return numbers of messages delivered but not handled, by queue."""
        lines = self.broker.ctl(
            'list_queues', 'messages_unacknowledged', '--no-table-headers'
        )
        return [int(line) for line in lines.split() if line.isdigit()] or [0]

    @staticmethod
    def rss_mib() -> int:
        with open('/proc/self/status') as file:
            (line,) = [line for line in file if line.startswith('VmRSS')]
        return int(line.split()[1]) // 1024
