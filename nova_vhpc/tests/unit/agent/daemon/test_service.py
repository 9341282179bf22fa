# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The daemon's parts together: ticks, and what operators ask for."""

import gc
import json
import pathlib
import tempfile
import threading
import types
import weakref
from collections.abc import Mapping
from unittest import mock

import fixtures
from oslotest import base

from nova_vhpc.agent import errors
from nova_vhpc.agent.daemon import options, service, status_socket
from nova_vhpc.agent.lifecycle import restore_queue
from nova_vhpc.control import model

WINDOWS = model.WindowSchedule(
    (
        model.Turn(50_000, frozenset({'u'}), {'u': 2048}),
        model.Turn(50_000, frozenset(), {'u': 20}),
    ),
    {'u': 1024},
)


class ServiceCase(base.BaseTestCase):
    """Makes a service that is not started."""

    def setUp(self) -> None:
        super().setUp()
        self.path = path = pathlib.Path(tempfile.mkdtemp(), 'agent.conf')
        path.write_text(
            '[vhpc_agent]\nlibvirt_uri = test:///default\nmetrics_port = 0\n'
            f'state_path = {path.parent}/state\nrun_path = {path.parent}/run\n'
        )
        conf = options.make_conf(['--config-file', str(path)])
        self.made = service.Service(conf)
        self.addCleanup(self.made.lock.release)
        self.addCleanup(self.made.guest_manager.executor.close)
        self.addCleanup(self.made.window_player.stop)


class PauseTest(ServiceCase):
    """No window is played in a pause, whenever the tick comes."""

    def tick(self) -> None:
        """Act as at the end of a tick that plans windows."""
        plan = types.SimpleNamespace(windows=WINDOWS, clusters=(), gangs=())
        view = types.SimpleNamespace(cpus=())
        self.made._act(types.SimpleNamespace(plan=plan, view=view))

    def playing(self) -> bool:
        return self.made.window_player.status().playing

    def test_pause_ends_windows(self) -> None:
        self.tick()
        self.assertTrue(self.playing())
        self.made.pause(0)
        self.assertFalse(self.playing())
        self.tick()
        self.assertFalse(self.playing())
        self.made.resume()
        self.tick()
        self.assertTrue(self.playing())

    def test_tick_just_before_a_pause_plays_nothing_after_it(self) -> None:
        pause = self.made.guest_manager.pause

        def tick_first() -> Mapping[str, restore_queue.RestoreAttempt]:
            self.tick()
            self.assertTrue(self.playing())
            return pause()

        self.made.guest_manager.pause = tick_first
        self.made.pause(0)
        self.assertFalse(self.playing())

    def test_tick_during_a_pause_call_plays_nothing_after_it(self) -> None:
        play = self.made.window_player.play

        def pause_first(windows: model.WindowSchedule | None) -> None:
            with mock.patch.object(self.made.window_player, 'play', play):
                self.made.pause(0)
            play(windows)

        with mock.patch.object(self.made.window_player, 'play', pause_first):
            self.tick()
        self.tick()
        self.assertFalse(self.playing())


class HealthTest(ServiceCase):
    """The status document says how each part is."""

    def test_status_has_the_health_of_each_part(self) -> None:
        judged = self.made.status()['health']
        self.assertEqual('starting', judged['parts']['libvirt']['state'])
        json.dumps(judged)

    def test_broken_journal_is_not_healthy_until_it_is_mended(self) -> None:
        state_path = self.path.parent / 'state'
        journal = state_path / 'journal'
        journal.rmdir()
        journal.write_text('in the way')
        with mock.patch.object(self.made.server, 'start', side_effect=OSError):
            self.assertRaises(errors.AgentError, self.made._start)
        parts = self.made.status()['health']['parts']
        self.assertEqual('failed', parts['journal']['state'])
        journal.unlink()
        self.made._watch_health()
        parts = self.made.status()['health']['parts']
        self.assertEqual('ok', parts['journal']['state'])


class ReloadTest(ServiceCase):
    """Reloaded options are in force at once."""

    def test_new_reconcile_period_takes_effect_at_once(self) -> None:
        woken = self.made.guest_manager._resync._wake
        self.made._reload()
        self.assertFalse(woken.is_set())
        with self.path.open('a') as file:
            file.write('reconcile_period = 1\n')
        self.made._reload()
        self.assertEqual(1.0, self.made.conf.vhpc_agent.reconcile_period)
        self.assertTrue(woken.is_set())


class StartTest(ServiceCase):
    """An error at the start names the option."""

    def start(self) -> str:
        error = self.assertRaises(errors.AgentError, self.made._start)
        self.addCleanup(self.made.server.stop)
        return str(error)

    def test_run_path_too_long_for_a_socket_is_reported(self) -> None:
        directory = pathlib.Path(tempfile.mkdtemp(), 'x' * 120)
        path = status_socket.socket_path(str(directory))
        self.made.server = status_socket.StatusServer(path, 0o660, dict)
        text = self.start()
        self.assertIn('too long; [vhpc_agent]run_path', text)


class GarbageTest(ServiceCase):
    """What lived for long and is in a reference cycle is freed, too."""

    def test_old_objects_in_reference_cycles_are_collected(self) -> None:
        class Cycle:
            """An object in a reference cycle."""

        self.addCleanup(gc.enable)
        gc.disable()
        one = Cycle()
        one.other = one  # type: ignore[attr-defined]
        gc.collect(1)
        dead = weakref.ref(one)
        del one
        self.made._watch_health()
        self.assertIsNone(dead())


class ForgottenNovaTest(ServiceCase):
    """One line says that nobody tells which servers are a cluster."""

    def test_missing_credentials_are_logged_at_the_start(self) -> None:
        self.addCleanup(self.made._shut_down)
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))
        self.made._start()
        (line,) = [
            line for line in log.output.splitlines() if '[vhpc_nova]' in line
        ]
        self.assertIn('neither auth_type nor groups_file', line)


class ShutdownTest(ServiceCase):
    """Guests are restored in time, whatever else hangs."""

    def test_exit_status_is_0_if_all_is_restored(self) -> None:
        self.made.binder = mock.Mock(left=False)
        self.assertEqual(0, self.made._shut_down())
        self.made.binder.stop.assert_called_once()

    def test_exit_status_is_1_if_nics_are_left(self) -> None:
        self.made.binder = mock.Mock(left=True)
        self.assertEqual(1, self.made._shut_down())

    def test_exit_status_of_a_dry_run_is_0(self) -> None:
        self.made.guest_manager._context.permission.dry_run = True
        hung = threading.Event()
        self.addCleanup(hung.set)
        self.made.binder = mock.Mock(stop=lambda *seconds: hung.wait(60))
        self.made.guest_manager.executor.submit('u', lambda: hung.wait(60))
        with mock.patch.object(service, 'RESTORE_SECONDS', 0.5):
            self.assertEqual(0, self.made._shut_down())

    def test_guests_do_not_wait_for_nics(self) -> None:
        """Restoring NICs is retried for seconds if libvirtd is away."""
        hung = threading.Event()
        self.addCleanup(hung.set)
        self.made.binder = mock.Mock(
            left=False, stop=lambda *seconds: hung.wait(60)
        )
        given: list[float] = []

        def stop(seconds: float) -> bool:
            given.append(seconds)
            hung.set()
            return True

        with (
            mock.patch.object(self.made.guest_manager, 'stop', stop),
            mock.patch.object(service, 'RESTORE_SECONDS', 20.0),
        ):
            self.assertEqual(0, self.made._shut_down())
        self.assertGreater(given[0], 10.0)
