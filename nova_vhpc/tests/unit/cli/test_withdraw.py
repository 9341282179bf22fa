# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``nova-vhpc-agent --withdraw``; the functional tests have Placement."""

import contextlib
import io
import pathlib
import signal
from collections.abc import Iterator
from unittest import mock

import fixtures
from oslotest import base

from nova_vhpc.agent import host_lock
from nova_vhpc.cli import agent, withdraw
from nova_vhpc.placement import client, withdrawal


class WithdrawTest(base.BaseTestCase):
    def start(self, text: str, *options: str) -> tuple[int, str]:
        """Return exit code and stderr."""
        temp_dir = self.useFixture(fixtures.TempDir()).path
        path = pathlib.Path(temp_dir, 'agent.conf')
        own = (
            f'[vhpc_agent]\nstate_path={temp_dir}\nrun_path={temp_dir}\n'
            'libvirt_uri=test:///default\n'
        )
        path.write_text(own + text)
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            code = agent.main(['--config-file', str(path), *options])
        return code, err.getvalue()

    def test_running_agent_is_refused(self) -> None:
        run_path = self.useFixture(fixtures.TempDir()).path
        running = host_lock.Lock(run_path)
        running.acquire()
        with self.placement() as away:
            code, complaint = self.start(
                f'run_path = {run_path}\n', '--withdraw'
            )
            away.move_out.assert_not_called()
        self.assertEqual(2, code)
        self.assertIn('another nova-vhpc-agent', complaint)

    def test_providers_are_deleted_after_the_wait(self) -> None:
        for arguments, waited in (
            ((), [360]),
            (('--withdraw-wait', '7'), [7]),
            (('--withdraw-wait', '0'), []),
        ):
            with self.placement('cn1:vhpc') as away:
                code, told = self.start('', '--withdraw', *arguments)
            calls = [name for name, _, _ in away.mock_calls]
            self.assertEqual(
                ['move_out', *['sleep' for _ in waited], 'delete'], calls
            )
            self.assertEqual(
                [mock.call(seconds) for seconds in waited],
                away.sleep.call_args_list,
            )
            self.assertEqual(0, code)
            self.assertEqual(len(waited) + 1, len(told.splitlines()))
            self.assertIn('all of it deleted', told)

    def test_no_wait_if_nothing_was_moved(self) -> None:
        with self.placement(kept='cn1:vhpc:br-a:eth1') as away:
            code, told = self.start('', '--withdraw')
        away.sleep.assert_not_called()
        self.assertEqual(1, code)
        self.assertIn('cn1:vhpc:br-a:eth1 is reserved', told)
        self.assertNotIn('all of it', told)

    def test_interrupt_during_the_wait_exits_with_130(self) -> None:
        with self.placement('cn1:vhpc') as away:
            away.sleep.side_effect = KeyboardInterrupt
            code, told = self.start('', '--withdraw')
        away.delete.assert_not_called()
        self.assertEqual(128 + signal.SIGINT, code)
        self.assertEqual(1, len(told.splitlines()), told)

    def test_agent_started_during_the_wait_is_reported(self) -> None:
        run_path = self.useFixture(fixtures.TempDir()).path
        running = host_lock.Lock(run_path)
        with self.placement('cn1:vhpc') as away:
            away.sleep.side_effect = lambda _: running.acquire()
            code, told = self.start(f'run_path = {run_path}\n', '--withdraw')
        running.release()
        away.delete.assert_not_called()
        self.assertEqual(2, code)
        self.assertIn('another nova-vhpc-agent', told)

    def test_uplinks_published_again_are_reported(self) -> None:
        with self.placement('cn1:vhpc', kept='cn1:vhpc:br-a:eth1') as away:
            away.delete.return_value = ('cn1:vhpc', 'cn1:vhpc:br-a:eth1')
            code, told = self.start('', '--withdraw')
        self.assertEqual(1, code)
        self.assertIn('cn1:vhpc: published again', told)
        self.assertNotIn('deleted', told)

    def test_placement_away_exits_with_1(self) -> None:
        with self.placement('cn1:vhpc') as away:
            away.delete.side_effect = client.PlacementError('is away')
            code, told = self.start('', '--withdraw', '--withdraw-wait', '0')
        self.assertEqual((1, 'nova-vhpc-agent: is away\n'), (code, told))

    def test_withdraw_runs_after_a_failed_restore(self) -> None:
        with (
            self.placement() as away,
            mock.patch.object(agent.restore_host, '_wait_for') as wait_for,
        ):
            wait_for.return_value = None
            code, complaint = self.start('', '--restore', '--withdraw')
        self.assertEqual(1, code)
        (line,) = complaint.splitlines()
        self.assertIn('withdrawn', line)
        away.delete.assert_called_once()

    @contextlib.contextmanager
    def placement(
        self, *moved: str, kept: str | None = None
    ) -> Iterator[mock.Mock]:
        """Patch the withdrawal to return these uplinks; do not wait."""
        away = mock.Mock()
        away.move_out.return_value = withdrawal.Withdrawn(
            moved, (kept,) if kept else ()
        )
        away.delete.return_value = (kept,) if kept else ()
        with (
            mock.patch.object(
                withdraw.publish_worker.PublishWorker,
                'withdrawal',
                return_value=away,
            ),
            mock.patch.object(withdraw.time, 'sleep', away.sleep),
        ):
            yield away
