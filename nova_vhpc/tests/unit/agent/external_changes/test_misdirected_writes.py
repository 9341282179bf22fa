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

"""A VM is destroyed and started anew while we write to it."""

import pathlib
import tempfile
import threading
from typing import Any
from unittest import mock

import libvirt

from nova_vhpc.agent.actuators import weights
from nova_vhpc.agent.guests import guest
from nova_vhpc.agent.journal import domain_metadata
from nova_vhpc.agent.journal.record import JournalRecord
from nova_vhpc.agent.libvirt import cgroup_weight, cputune
from nova_vhpc.agent.lifecycle import writer
from nova_vhpc.agent.restore import cputune as cputune_restore
from nova_vhpc.control import model
from nova_vhpc.tests.unit.agent import fake_libvirt
from nova_vhpc.tests.unit.agent.lifecycle import manager as manager_case

TUNE = model.CpuTune(8_000, 8_000, vcpu_pins=(frozenset({0}), frozenset({1})))
OWN = '<cputune><period>50000</period><quota>20000</quota></cputune>'
HELD_S = 0.3


class TestStrays(manager_case.ManagerTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.target = self.look()
        self.made.set_shares('u', 30)
        self.original = dict(fake_libvirt.ORIGINAL)
        self.mark: str | None = None
        self.domain.refuse = self.restart

    def restart(self) -> None:
        """As the call waits for the domain; once."""
        self.domain.refuse = lambda: None
        self.domain.id += 1
        self.domain.values = dict(self.original)
        self.domain.pins = [(True, True)] * 2
        self.domain.mark = self.mark

    def assert_as_it_began(self) -> None:
        self.drain()
        self.assertEqual(self.original, self.domain.values)
        self.assertEqual([(True, True)] * 2, self.domain.pins)
        self.assertIsNone(self.domain.mark)
        found = self.look()
        self.assertIsNot(self.target, found)
        self.assertEqual(self.original, found.original.parameters)
        self.assertEqual(frozenset(), found.external)
        self.assertEqual((), self.records.uuids())

    def test_a_window(self) -> None:
        self.assertFalse(self.made.set_shares('u', 20))
        self.assert_as_it_began()

    def test_a_tick(self) -> None:
        self.made.write(self.target, TUNE)
        self.assert_as_it_began()

    def test_a_tick_of_which_half_is_refused(self) -> None:
        """The actuator puts the other half back: that, too, comes late."""
        self.write_known(model.CpuTune(9_000, 9_000))
        self.domain.refuse = self.ends
        self.made.write(self.target, model.CpuTune(9_000, 9_000))
        self.assert_as_it_began()

    def write_known(self, tune: model.CpuTune) -> None:
        """Have a tune journalled, so that only its values are written."""
        self.domain.refuse = lambda: None
        for one in (tune, model.CpuTune(7_000, 7_000)):
            self.made.write(self.target, one)
            self.drain()

    def ends(self) -> None:
        self.domain.refuse = self.restart
        raise fake_libvirt.error(
            libvirt.VIR_ERR_OPERATION_INVALID, 'domain is not running'
        )

    def test_a_tick_of_which_another_actuator_fails(self) -> None:
        failing = mock.Mock(write=mock.Mock(side_effect=OSError('no daemon')))
        self.made._writer._actuators += (failing,)
        self.made.write(self.target, TUNE)
        self.assert_as_it_began()

    def test_the_new_run_has_settings_of_its_own(self) -> None:
        self.domain.extra = OWN
        self.original |= {cputune.PERIOD: 50_000, cputune.QUOTA: 20_000}
        self.made.write(self.target, TUNE)
        self.assert_as_it_began()

    def put_back(self) -> None:
        """One window and one tick have written before."""
        self.domain.refuse = lambda: None
        self.made.write(self.target, TUNE)
        self.drain()
        self.domain.extra = OWN
        self.original |= {cputune.PERIOD: 50_000, cputune.QUOTA: 20_000}
        self.domain.refuse = self.restart
        self.made.pause()

    def test_what_was_before_us_is_not_for_another_run(self) -> None:
        self.put_back()
        self.assert_as_it_began()

    def test_nor_where_the_next_call_is_refused(self) -> None:
        restart = self.restart

        def fail() -> None:
            self.domain.refuse = lambda: None
            raise fake_libvirt.refused('busy')

        def restart_and_fail() -> None:
            restart()
            self.domain.refuse = fail

        self.restart = restart_and_fail
        self.put_back()
        self.assert_as_it_began()

    def written(self) -> None:
        """A tick has written, and the next run has other settings."""
        self.domain.refuse = lambda: None
        self.made.write(self.target, TUNE)
        self.drain()
        self.domain.extra = OWN
        self.original |= {cputune.PERIOD: 50_000, cputune.QUOTA: 20_000}

    def test_nor_is_what_goes_with_somebody_elses_change(self) -> None:
        self.written()
        self.domain.values[cputune.QUOTA] = 4_000
        restore = cputune_restore.restore

        def late(*args: Any) -> tuple[str, ...]:
            self.restart()
            return restore(*args)

        with mock.patch.object(cputune_restore, 'restore', late):
            self.made.enqueue('u')
            self.drain()
        self.assert_as_it_began()

    def test_nor_is_what_somebody_else_had_set(self) -> None:
        for name, value in ((cputune.QUOTA, 4_000), (cputune.SHARES, 77)):
            with self.subTest(name):
                self.written()
                if name == cputune.SHARES:
                    self.made.set_shares('u', 30)
                    self.target.event_history.external_shares = value
                else:
                    self.target.event_history.external = {name: value}
                self.domain.refuse = self.restart
                self.made.enqueue('u')
                self.assert_as_it_began()
                self.target = self.look()

    def test_nor_is_what_went_with_it_and_was_theirs_before(self) -> None:
        """Period and quota are given back in one call."""
        self.written()
        self.domain.values[cputune.PERIOD] = 77_000
        self.made.enqueue('u')
        self.drain()
        # Quota was put back as it was before us, just after it was set.
        self.target.event_history.external = {cputune.QUOTA: 33_000}
        self.domain.refuse = self.restart
        self.made.enqueue('u')
        self.assert_as_it_began()

    def test_nor_is_the_copy_of_one_that_was_put_back(self) -> None:
        """Its pins would be taken for those of a VM that floats."""
        self.written()
        put = domain_metadata.put

        def late(domain: Any, record: JournalRecord) -> None:
            if record.restored:
                self.restart()
                self.domain.pins = [(True, False), (False, True)]
            put(domain, record)

        with mock.patch.object(domain_metadata, 'put', late):
            self.made.restore_before_migration(frozenset({'u'}))
            self.drain()
        self.assertIsNone(self.domain.mark)
        self.assertIsNot(self.target, self.look())
        self.assertEqual([(True, False), (False, True)], self.domain.pins)
        self.assertEqual((), self.records.uuids())

    def test_what_is_not_taken_back_at_once_is_when_it_is_found(self) -> None:
        """libvirt says that it has done what it has not."""
        self.write_known(TUNE)
        self.domain.refuse = self.restart
        restore = cputune_restore.restore
        tries = iter((('vcpu_period is 8000',), None))
        with mock.patch.object(
            cputune_restore,
            'restore',
            lambda *all_: next(tries) or restore(*all_),
        ):
            self.made.write(self.target, TUNE)
            self.drain()
        self.assertIsNone(next(tries, None))
        self.assert_as_it_began()

    def test_it_came_back_from_disk(self) -> None:
        """With what is in its copy, by which it is put back."""
        self.mark = self.domain.mark
        self.original[cputune.SHARES] = 30
        self.assertFalse(self.made.set_shares('u', 20))
        self.original = dict(fake_libvirt.ORIGINAL)
        self.assert_as_it_began()

    def test_it_has_ended(self) -> None:
        self.domain.refuse = lambda: setattr(self.domain, 'id', -1)
        self.assertFalse(self.made.set_shares('u', 20))
        self.drain()
        self.assertEqual({}, self.made.guests)

    def look_meanwhile(self, uuid: str, run: int) -> bool:
        """A worker finds the new run before the write is taken back."""
        if self.domain.id == run:
            return True
        self.made.enqueue('u')
        self.made.executor.drain(HELD_S)
        return False

    def test_nobody_takes_the_new_run_in_before(self) -> None:
        with mock.patch.object(
            self.made.connection, 'runs', self.look_meanwhile
        ):
            self.assertFalse(self.made.set_shares('u', 20))
            self.drain()
        self.assert_as_it_began()

    def test_nor_takes_the_old_one_for_gone(self) -> None:
        """Its record says what may be in the new one."""
        self.domain.refuse = self.ends_and_is_found_gone
        self.assertFalse(self.made.set_shares('u', 20))
        self.assertIn('u', self.kept)
        self.assert_as_it_began()

    def ends_and_is_found_gone(self) -> None:
        self.domain.id = -1
        self.made.enqueue('u')
        self.made.executor.drain(HELD_S)
        self.kept = self.records.uuids()
        self.domain.id = self.target.domain_id
        self.restart()

    def test_a_window_that_waited_for_the_other_does_not_write(self) -> None:
        self.domain.refuse = lambda: None
        written: list[bool] = []
        late = threading.Thread(
            target=lambda: written.append(self.made.set_shares('u', 20))
        )
        patience = mock.patch.object(
            writer, 'LOCK_SECONDS', manager_case.PATIENCE_S
        )
        with patience, self.target.lock:
            late.start()
            self.restart()
            self.made.enqueue('u')
            self.made.executor.drain(0.02)
            self.assertTrue(late.is_alive())
        late.join()
        self.assertEqual([False], written)
        self.assert_as_it_began()

    def test_nor_does_one_that_needs_no_lock_find_the_new_file(self) -> None:
        path = pathlib.Path(tempfile.mkdtemp()) / 'cpu.weight'
        self.target.weight_file = cgroup_weight.WeightFile(path)
        self.target.weight_file.proven = True
        self.target.lock_free_weights = frozenset({20})
        entered, go_on = threading.Event(), threading.Event()
        write_file = weights.Weights.write_file

        def slowly(
            own: weights.Weights, target: guest.Guest, shares: int
        ) -> bool:
            entered.set()
            go_on.wait(HELD_S)
            return write_file(own, target, shares)

        with (
            mock.patch.object(weights.Weights, 'write_file', slowly),
            mock.patch.object(weights, '_find') as find,
        ):
            window = threading.Thread(
                target=self.made.set_shares, args=('u', 20)
            )
            window.start()
            self.assertTrue(entered.wait(manager_case.PATIENCE_S))
            self.restart()
            with self.target.lock:
                self.made._writer._misdirected.revert(self.target)
            go_on.set()
            window.join()
        find.assert_not_called()
        self.assertEqual('20', path.read_text())
        self.assertEqual(frozenset(), self.target.lock_free_weights)
        self.assert_as_it_began()
