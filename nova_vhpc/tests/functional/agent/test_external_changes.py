# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""External changes of a managed server."""

import contextlib
import io

from nova_vhpc.cli import ctl
from nova_vhpc.tests.functional import rabbitmq
from nova_vhpc.tests.functional.agent import base

PARALLEL = {'vhpc:workload': 'parallel'}

FAR = 3600
"""Resync period in seconds, longer than any test: only events count."""

HOST = 'compute1'


class ExternalChangesTestCase(base.AgentTestCase):
    """Has one server, with its cputune from before the agent."""

    def setUp(self) -> None:
        super().setUp()
        self.server = self.domain(PARALLEL)
        self.before = base.everything(self.server)

    def change_period(self) -> None:
        """Do what ``virsh schedinfo --set vcpu_period=77000`` does."""
        self.server.setSchedulerParametersFlags(
            {'vcpu_period': 77_000}, base.LIVE
        )

    def wait_for_hand_back(self) -> None:
        """Wait until the server is handed back, with nothing left to write."""
        self.wait_for(
            lambda: (
                (vm := self.vm(self.server))['external']
                and not vm['journalled']
            ),
            'the server to be handed back',
        )

    def assert_only_period_differs(self) -> None:
        now = base.everything(self.server)
        self.assertEqual({**self.before[0], 'vcpu_period': 77_000}, now[0])
        self.assertEqual(self.before[1:], now[1:])


class ExternalChangesTest(ExternalChangesTestCase):
    def test_respected_change_hands_the_whole_server_back(self) -> None:
        with self.running(
            reconcile_period=FAR, vhpc_control__pinning_policy='balance'
        ):
            self.wait_for_write(self.server)
            self.change_period()
            self.wait_for_hand_back()
            self.assertEqual(['vcpu_period'], self.vm(self.server)['released'])
            self.assertEqual('external', self.vm(self.server)['hands_off'])
            self.wait_for_ticks(5)
            self.assert_only_period_differs()
            self.assertEqual(1, len(self.log_lines('external change')))
            self.assertEqual(1, self.status()['agent']['handed_back'])
        self.assert_only_period_differs()

    def test_handed_back_server_stays_so_when_the_agent_restarts(self) -> None:
        with self.running():
            self.wait_for_write(self.server)
            self.change_period()
            self.wait_for_hand_back()
        self.assertEqual(0, self.restore())
        with self.running():
            self.wait_for(lambda: self.vm(self.server), 'the adoption')
            self.wait_for_ticks(5)
            self.assertTrue(self.vm(self.server)['external'])
            self.assertEqual(0, self.vm(self.server)['writes'])
        self.assert_only_period_differs()

    def test_handed_back_server_that_starts_anew_is_managed(self) -> None:
        definition = self.server.XMLDesc(0)
        with self.running():
            self.wait_for_write(self.server)
            self.change_period()
            self.wait_for_hand_back()
            self.server.destroy()
            self.server = self.conn.createXML(definition)
            # Until it is adopted, the status shows the run that ended.
            self.wait_for(
                lambda: (
                    (vm := self.vm(self.server))
                    and vm['writes']
                    and not vm['external']
                ),
                'a write to the new run',
            )

    def test_overridden_change_is_written_over(self) -> None:
        with self.running(reconcile_period=FAR, foreign_changes='override'):
            ours = self.wait_for_period(self.server)
            self.change_period()
            self.wait_for(
                lambda: self.log_lines('external change'), 'the log line'
            )
            self.wait_for(
                lambda: self.period(self.server) == ours, 'our period'
            )
        self.assertEqual(self.before, base.everything(self.server))

    def test_changed_pin_is_noticed_and_stays(self) -> None:
        with self.running(
            reconcile_period=FAR, vhpc_control__pinning_policy='none'
        ):
            self.wait_for_write(self.server)
            self.server.pinVcpuFlags(0, (True, False), base.LIVE)
            self.wait_for_hand_back()
        pins = self.server.vcpuPinInfo(base.LIVE)
        self.assertEqual((True, False), pins[0][:2])


class ResumeTest(ExternalChangesTestCase):
    """An operator resumes a server over a message broker."""

    def ctl(self, *arguments: str) -> tuple[int, str]:
        """Run ``nova-vhpc-ctl``; return its exit status and its output."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            status = ctl.main(
                [
                    '--config-file',
                    str(self.path / 'agent.conf'),
                    '--timeout',
                    '30',
                    *arguments,
                    '--host',
                    HOST,
                ]
            )
        return status, out.getvalue()

    def test_server_is_managed_again_until_the_agent_ends(self) -> None:
        broker = self.useFixture(rabbitmq.VirtualHostFixture())
        with self.running(
            DEFAULT__transport_url=broker.url, vhpc_agent__host=HOST
        ):
            self.wait_for_write(self.server)
            self.change_period()
            self.wait_for_hand_back()
            written = self.vm(self.server)['writes']
            uuid = self.server.UUIDString()
            status, output = self.ctl('resume', uuid, '-f', 'value')
            self.assertEqual(
                (0, f"{HOST} True ['{uuid}'] []\n"), (status, output)
            )
            self.wait_for(
                lambda: self.vm(self.server)['writes'] > written, 'a write'
            )
            self.assertFalse(self.vm(self.server)['external'])
            status, output = self.ctl('resume', 'no-such-server')
            self.assertEqual(1, status)
            self.assertIn('is not known to the agent of compute1', output)
        self.assert_only_period_differs()
