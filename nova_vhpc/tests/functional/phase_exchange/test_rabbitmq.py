# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""The phase exchange over a RabbitMQ that is killed, restarted, frozen."""

import contextlib
import json
import logging
import statistics
import time

import fixtures
from oslotest import base

from nova_vhpc.agent.rpc import control
from nova_vhpc.cli import ctl
from nova_vhpc.control.model import ClusterPlan, Phase
from nova_vhpc.tests.functional import rabbitmq
from nova_vhpc.tests.unit.agent.clusters import peer_agents as agents
from nova_vhpc_lab.testbed.patience import PATIENCE_S

IO, QUIET = agents.IO, agents.QUIET
LEASE_S = 3.0


class RabbitMQTestCase(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.url = self.make_url()
        self.log = self.useFixture(
            fixtures.FakeLogger(
                'nova_vhpc', format='%(message)s', level=logging.INFO
            )
        )

    def make_url(self) -> str:
        """Return the URL of a virtual host that only this test uses."""
        return self.useFixture(rabbitmq.VirtualHostFixture()).url

    def agent(self, host: str, **options: object) -> agents.Agent:
        options.setdefault('lease', LEASE_S)
        agent = agents.Agent(self.url, host, **options)
        self.addCleanup(agent.stop)
        return agent

    def wait_for(self, what: object, timeout_s: float = PATIENCE_S) -> None:
        self.assertTrue(agents.wait_for(what, timeout_s), 'it never came true')

    def wait_for_state(
        self, state: str, agent: agents.Agent, timeout_s: float = PATIENCE_S
    ) -> None:
        """Wait for a state of the bus in an agent's status."""
        self.wait_for(
            lambda: agent.phase_exchange.status()['state'] == state, timeout_s
        )

    def pair(self, **options: object) -> tuple[agents.Agent, agents.Agent]:
        """Start agents of two hosts, both of which listen to cluster c1."""
        a = self.agent('a', **options).start(c1=QUIET)
        b = self.agent('b', **options).start(c1=QUIET)
        self.wait_for(lambda: a.listens('c1') and b.listens('c1'))
        return a, b

    def count(self, text: str) -> int:
        return sum(text in line for line in self.log.output.splitlines())


class PhasesTest(RabbitMQTestCase):
    def test_hosts_exchange_phases_slices_and_control_calls(self) -> None:
        """One test, because all checks use the same agents."""
        a, b = self.pair()
        stranger = self.agent('z').start(other=IO)
        self.wait_for(lambda: stranger.listens('other'))
        self.check_moves(a, b)
        self.check_stranger(stranger)
        self.check_leaving(a, b)
        self.check_slices()
        self.check_control(a)
        self.check_ctl(a)

    def check_moves(self, a: agents.Agent, b: agents.Agent) -> None:
        """A phase that one host sees reaches the other host."""
        lags = []
        for _ in range(20):
            for statement, io in ((IO, True), (QUIET, False)):
                begin = time.monotonic()
                a.say(c1=statement)
                self.wait_for(lambda io=io: b.io('c1') == io)
                lags.append(time.monotonic() - begin)
        self.addDetail(
            'lag',
            self.text(
                f'median {statistics.median(lags) * 1000:.1f} ms, '
                f'worst {max(lags) * 1000:.1f} ms'
            ),
        )
        print(
            f'phase from host to host: median '
            f'{statistics.median(lags) * 1000:.1f} ms, worst '
            f'{max(lags) * 1000:.1f} ms'
        )
        # The lag is a message's, not the expiry of a lease.
        self.assertLess(statistics.median(lags), LEASE_S / 3)

    def text(self, words: str) -> object:
        from testtools import content

        return content.text_content(words)

    def check_stranger(self, stranger: agents.Agent) -> None:
        """A host without members receives no messages of a cluster."""
        status = stranger.phase_exchange.status()
        self.assertEqual(['other'], status['listening'])
        self.assertEqual(0, status['received'])

    def check_leaving(self, a: agents.Agent, b: agents.Agent) -> None:
        """Statements of a stopped agent end at once, before their lease."""
        c = self.agent('c', lease=600.0).start(c1=IO)
        self.wait_for(lambda: a.io('c1') and b.io('c1'))
        c.stop()
        self.wait_for(lambda: not a.io('c1') and not b.io('c1'))
        # With its last member, a host's statement on the cluster ends.
        a.say(c1=IO)
        self.wait_for(lambda: b.io('c1'))
        a.say()
        self.wait_for(lambda: not b.io('c1'))
        self.wait_for(lambda: not a.listens('c1'))
        a.say(c1=QUIET)
        self.wait_for(lambda: a.listens('c1'))

    def check_slices(self) -> None:
        """With ``share_min_slice``, hosts know the peers' smallest slice."""
        d = self.agent('d', share_min_slice=True)
        e = self.agent('e', share_min_slice=True)
        d.start(c2=ClusterPlan(Phase.COMPUTING, 5000))
        e.start(c2=ClusterPlan(Phase.COMPUTING, 9000))

        def slices() -> list[object]:
            return [
                agent.phase_exchange.views()['c2'].min_slice_us
                for agent in (d, e)
            ]

        self.wait_for(lambda: {'c2'} <= d.phase_exchange.views().keys())
        self.wait_for(lambda: {'c2'} <= e.phase_exchange.views().keys())
        self.wait_for(lambda: slices() == [9000, 5000])
        d.say(c2=ClusterPlan(Phase.COMPUTING, 4000))
        self.wait_for(lambda: slices() == [9000, 4000])

    def check_control(self, a: agents.Agent) -> None:
        """Control calls reach their host, or fail with a reason."""
        client = control.ControlClient(
            agents.make_conf(self.url, call_timeout=3.0)
        )
        self.addCleanup(client.close)
        self.assertEqual({'vms': [{'uuid': 'x'}]}, client.call('a', 'status'))
        client.call('a', 'pause')
        client.call('a', 'resume')
        client.call('a', 'restore', server='s1')
        self.assertEqual(
            ['pause', 'resume', ('restore', 's1')], a.control.calls
        )
        error = self.assertRaises(
            control.ControlError,
            client.call,
            'a',
            'restore',
            server='missing',
        )
        self.assertIn('no server missing on this host', str(error))
        error = self.assertRaises(
            control.ControlError, client.call, 'nobody', 'status'
        )
        self.assertIn('host nobody', str(error))
        self.assertIn('nova-vhpc-agent running', str(error))

    def check_ctl(self, a: agents.Agent) -> None:
        """``nova-vhpc-ctl`` works as an operator calls it."""
        path = self.useFixture(fixtures.TempDir()).join('agent.conf')
        with open(path, 'w') as file:
            file.write(f'[DEFAULT]\ntransport_url = {self.url}\n')

        def run(*words: str) -> tuple[int, str, str]:
            out = self.useFixture(fixtures.StringStream('out'))
            err = self.useFixture(fixtures.StringStream('err'))
            with (
                contextlib.redirect_stdout(out.stream),
                contextlib.redirect_stderr(err.stream),
            ):
                code = ctl.main(['--config-file', path, *words])
                out.stream.flush()
                err.stream.flush()
            return (
                code,
                out.getDetails()['out'].as_text(),
                err.getDetails()['err'].as_text(),
            )

        code, out, err = run('status', '--host', 'a', '--host', 'b')
        self.assertEqual((0, ''), (code, err))
        self.assertIn('a: agent', out)
        self.assertIn('b: agent', out)
        code, out, _ = run('--json', 'status', '--host', 'a')
        self.assertEqual({'a': {'vms': [{'uuid': 'x'}]}}, json.loads(out))
        code, out, _ = run(
            '--timeout', '2', 'pause', '--host', 'a', '--host', 'nobody'
        )
        self.assertEqual(1, code)
        self.assertRegex(out, r'a +\| True')
        self.assertIn('host nobody', out)
        self.assertEqual('pause', a.control.calls[-1])
        code, out, _ = run('restore', '--host', 'a', '--server', 's2')
        self.assertEqual(0, code)
        self.assertIn('s2', out)


class OwnBrokerTestCase(RabbitMQTestCase):
    """Has a broker that the test may kill or configure."""

    def make_url(self) -> str:
        self.broker = self.useFixture(rabbitmq.RabbitMQFixture()).broker
        return self.broker.url


class BrokerAwayTest(OwnBrokerTestCase):
    def test_phases_flow_again_after_the_broker_is_killed(self) -> None:
        a, b = self.pair()
        a.say(c1=IO)
        self.wait_for(lambda: b.io('c1'))
        self.broker.kill()
        # Host A, which sees I/O, stays in its phase; host B returns to what
        # it sees itself when the lease ends.
        self.wait_for(lambda: not b.io('c1'), LEASE_S * 3)
        self.assertTrue(a.io('c1'))
        # B notices it, too, although it sends nothing but echoes.
        for agent in (a, b):
            self.wait_for_state('down', agent)
        time.sleep(2)
        self.broker.start()
        self.wait_for(lambda: b.io('c1'))
        a.say(c1=QUIET)
        self.wait_for(lambda: not b.io('c1'))
        for agent in (a, b):
            self.wait_for_state('up', agent)
            self.assertIsNotNone(agent.phase_exchange.status()['echo_us'])
        self.assertLess(a.slowest_s, 0.5)
        self.assertLess(b.slowest_s, 0.5)
        # Each host logs one line per change of state.
        self.assertLessEqual(self.count('The message bus is away'), 3)
        self.assertLessEqual(self.count('carries phases'), 5)
        self.assertEqual(0, self.count('Traceback'))

    def test_phases_flow_once_an_absent_broker_starts(self) -> None:
        self.broker.kill()
        a = self.agent('a').start(c1=IO)
        b = self.agent('b').start(c1=QUIET)
        self.wait_for_state('down', a)
        self.assertTrue(a.io('c1'))
        self.assertFalse(b.io('c1'))
        self.broker.start()
        self.wait_for(lambda: b.io('c1'))
        self.assertLess(a.slowest_s, 0.5)

    def test_agent_listens_once_the_broker_accepts_its_login(self) -> None:
        """The agents' account is created after they were started."""
        self.broker.ctl('change_password', 'guest', 'other')
        a = self.agent('a').start(c1=QUIET)
        self.wait_for_state('down', a)
        self.wait_for(lambda: self.count('Control calls are not answered'))
        self.broker.ctl('change_password', 'guest', 'guest')
        # The state is up once an echo has come back.
        self.wait_for_state('up', a)
        self.assertEqual(1, self.count('Control calls are not answered;'))
        self.assertLessEqual(
            self.count('Cannot listen to virtual clusters'), 1
        )

    def test_hosts_decide_on_while_the_broker_is_frozen(self) -> None:
        a, b = self.pair()
        self.broker.pause()
        self.addCleanup(self.broker.resume)
        for _ in range(20):
            a.say(c1=IO)
            a.say(c1=QUIET)
            time.sleep(0.05)
        a.say(c1=IO)
        for agent in (a, b):
            self.wait_for_state('down', agent)
        self.assertLess(a.slowest_s, 0.5)
        self.assertFalse(b.io('c1'))
        self.broker.resume()
        self.wait_for(lambda: b.io('c1'))
        for agent in (a, b):
            self.wait_for_state('up', agent)
