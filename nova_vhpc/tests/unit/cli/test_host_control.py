# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import uuid

from nova_vhpc.tests.unit.cli import bus, test_cluster


class ControlTest(test_cluster.ClusterTestCase):
    def setUp(self):
        super().setUp()
        self.bus = self.useFixture(bus.Bus())
        # Queues of the bus outlive a test.
        self.one, self.two = (uuid.uuid4().hex for _ in range(2))

    def control(self, *argv):
        status, out, err = self.run_(
            'host', *argv, *self.bus.options, '-f', 'value'
        )
        return status, out.splitlines(), err

    def test_pause_restores_the_servers_of_each_host(self):
        agents = [
            self.bus.agent(host, restored=['x'], failed={}, unknown=[])
            for host in (self.one, self.two)
        ]
        status, lines, err = self.control('pause', self.one, self.two)
        self.assertEqual(0, status, err)
        for host, line in zip((self.one, self.two), lines, strict=True):
            self.assertIn(f'{host} True 1', line)
        for agent in agents:
            self.assertEqual([('pause', None)], agent.calls)

    def test_server_that_is_not_restored_exits_with_1(self):
        self.bus.agent(self.one, restored=[], failed={'x': 'busy'}, unknown=[])
        status, lines, _ = self.control('pause', self.one)
        self.assertEqual(1, status)
        self.assertIn('server x is not restored: busy', ' '.join(lines))

    def test_host_without_an_agent_exits_with_1(self):
        self.bus.agent(self.one, restored=[], failed={}, unknown=[])
        status, lines, _ = self.control(
            'pause', self.one, self.two, '--timeout', '2'
        )
        self.assertEqual(1, status)
        self.assertIn(f'{self.one} True 0', lines[0])
        self.assertIn(f'{self.two} False 0', lines[1])

    def test_resume_of_one_server(self):
        agent = self.bus.agent(self.one, resumed=['x'], failed={}, unknown=[])
        status, _, err = self.control('resume', self.one, '--server', 'x')
        self.assertEqual(0, status, err)
        self.assertEqual([('resume', 'x')], agent.calls)

    def test_resume_of_one_server_on_two_hosts_is_refused(self):
        status, _, err = self.control(
            'resume', self.one, self.two, '--server', 'x'
        )
        self.assertEqual(1, status)
        self.assertIn('the one host', err)

    def test_pause_without_a_bus_is_refused(self):
        status, _, err = self.run_('host', 'pause', self.one)
        self.assertEqual(1, status)
        self.assertIn('no transport_url is set', err)
