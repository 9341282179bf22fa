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

"""What must be put back is, some day; and nothing is written meanwhile."""

import tempfile
import threading
import time
from typing import Any

import libvirt
from oslo_config import cfg
from oslotest import base

from nova_vhpc.agent import (
    cputune,
    domains,
    guest,
    journal,
    processes,
    sampler,
)
from nova_vhpc.agent.actuators import libvirt_cputune
from nova_vhpc.conf import agent as agent_conf
from nova_vhpc.control import model
from nova_vhpc.tests.unit.agent import fake_libvirt

WISH = model.CpuTune(8_000, 8_000)
PATIENCE_S = 60.0


class DomainsCase(base.BaseTestCase):
    """All parts together; only libvirt is of memory."""

    def setUp(self) -> None:
        super().setUp()
        self.state = tempfile.mkdtemp()
        self.domain = fake_libvirt.Domain()
        self.made = self.make()

    def make(self, **options: Any) -> domains.Domains:
        conf = cfg.ConfigOpts()
        agent_conf.register_opts(conf)
        conf([], default_config_files=[])
        for name, value in options.items():
            conf.set_override(name, value, 'vhpc_agent')
        self.records = journal.Journal(self.state)
        made = domains.Domains(
            conf,
            self.records,
            processes.Processes('/nowhere', '/nowhere'),
            sampler.Sampler([], []),
            [libvirt_cputune.LibvirtCputuneActuator(conf)],
            frozenset({0, 1}),
        )
        made.connection._conn = fake_libvirt.Link(self.domain)
        self.addCleanup(made.workers.close)
        return made

    def look(self) -> guest.Guest:
        """Have the VM found, or found out about."""
        self.made.look('u')
        self.drain()
        return self.made.guests['u']

    def drain(self) -> None:
        self.assertTrue(self.made.workers.drain(PATIENCE_S))

    def write(self, target: guest.Guest) -> None:
        self.made.write(target, WISH)
        self.drain()

    def reconcile(self) -> None:
        self.made._reconciler._reconcile(0)
        self.drain()

    def refuse(self) -> None:
        raise fake_libvirt.error(libvirt.VIR_ERR_OPERATION_TIMEOUT, 'busy')

    def assert_put_back(self) -> None:
        self.assertEqual(fake_libvirt.ORIGINAL, self.domain.values)
        self.assertEqual((), self.records.uuids())
        self.assertIsNone(self.domain.mark)


class TestUndo(DomainsCase):
    def setUp(self) -> None:
        super().setUp()
        self.target = self.look()
        self.write(self.target)
        self.assertEqual(8_000, self.domain.values[cputune.QUOTA])
        self.domain.refuse = self.refuse

    def recover(self) -> None:
        self.domain.refuse = lambda: None
        self.reconcile()

    def test_a_restore_that_fails_is_tried_again(self) -> None:
        done = self.made.restore_one('u')
        self.assertEqual('busy', done.result(PATIENCE_S))
        self.reconcile()
        self.assertEqual(8_000, self.domain.values[cputune.QUOTA])
        self.recover()
        self.assert_put_back()
        self.assertEqual('restored', self.target.hands_off)

    def test_a_pause_that_fails_is_tried_again(self) -> None:
        done = self.made.pause()
        self.assertEqual('busy', done['u'].result(PATIENCE_S))
        self.recover()
        self.assert_put_back()

    def test_leaving_that_fails_is_tried_again(self) -> None:
        self.made.let_leave(frozenset({'u'}))
        self.drain()
        self.assertEqual(8_000, self.domain.values[cputune.QUOTA])
        self.recover()
        self.assert_put_back()

    def test_opting_out_that_fails_is_tried_again(self) -> None:
        self.domain.specs.clear()
        self.look()
        self.recover()
        self.assert_put_back()
        self.assertEqual({}, self.made.guests)

    def test_not_during_a_migration_but_after_it(self) -> None:
        self.made.pause()
        self.drain()
        self.domain.job = libvirt.VIR_DOMAIN_JOB_UNBOUNDED
        self.recover()
        self.recover()
        self.assertEqual(8_000, self.domain.values[cputune.QUOTA])
        self.domain.job = 0
        self.reconcile()
        self.assert_put_back()

    def test_a_call_that_is_invalid_for_now_is_not_the_end(self) -> None:
        def refuse() -> None:
            raise fake_libvirt.error(libvirt.VIR_ERR_OPERATION_INVALID)

        self.domain.refuse = refuse
        self.made.restore_one('u').result(PATIENCE_S)
        self.assertIs(self.target, self.made.guests['u'])
        self.recover()
        self.assert_put_back()

    def test_a_vm_that_is_gone_is_owed_no_more(self) -> None:
        def vanish() -> None:
            self.made.connection.get().domains.clear()
            raise fake_libvirt.error(libvirt.VIR_ERR_NO_DOMAIN)

        self.domain.refuse = vanish
        done = self.made.restore_one('u')
        self.assertEqual('it is gone', done.result(PATIENCE_S))
        self.assertEqual({}, self.made.guests)
        self.assertEqual({}, self.made._undo._owed)

    def test_a_vm_that_was_resumed_is_owed_no_more(self) -> None:
        self.made.pause()
        self.drain()
        self.made.resume()
        self.recover()
        self.assertEqual(8_000, self.domain.values[cputune.QUOTA])
        self.assertTrue(self.target.free_to_write)

    def test_half_of_a_restore_is_not_somebody_elses(self) -> None:
        self.made.pause()
        self.drain()
        self.domain.values[cputune.PERIOD] = 100_000
        self.reconcile()
        self.assertEqual(0, self.made.foreign)

    def test_said_once_when_it_fails_and_once_when_it_is_done(self) -> None:
        with self.assertLogs('nova_vhpc.agent.undo', 'INFO') as logs:
            self.made.restore_one('u')
            self.drain()
            self.reconcile()
            self.reconcile()
            self.recover()
            self.reconcile()
        self.assertEqual(
            ['ERROR', 'INFO'], [r.levelname for r in logs.records]
        )

    def test_a_try_that_hangs_is_not_joined_by_others(self) -> None:
        go = threading.Event()
        self.addCleanup(go.set)
        self.domain.refuse = lambda: self.assertTrue(go.wait(PATIENCE_S))
        first = self.made.restore_one('u')
        self.made._undo.retry('u')
        self.assertIs(first, self.made.restore_one('u'))
        self.assertGreaterEqual(1, self.made.workers.pending('u'))
        go.set()
        self.assertEqual('', first.result(PATIENCE_S))


class TestStop(DomainsCase):
    def test_a_first_record_that_is_just_being_written(self) -> None:
        target = self.look()
        inside, go = threading.Event(), threading.Event()
        save = self.records.save

        def slow(record: journal.Record) -> None:
            inside.set()
            go.wait(PATIENCE_S)
            save(record)

        self.records.save = slow
        self.made.write(target, WISH)
        self.assertTrue(inside.wait(PATIENCE_S))
        stopped: list[bool] = []
        stop = threading.Thread(
            target=lambda: stopped.append(self.made.stop(PATIENCE_S))
        )
        stop.start()
        while guest.Hold.STOPPING not in target.holds and stop.is_alive():
            time.sleep(0.001)
        go.set()
        stop.join()
        self.assertEqual([True], stopped)
        self.assert_put_back()

    def test_a_refusal_is_tried_once_more(self) -> None:
        self.write(self.look())

        def refuse() -> None:
            self.domain.refuse = lambda: None
            self.refuse()

        self.domain.refuse = refuse
        self.assertTrue(self.made.stop(PATIENCE_S))
        self.assert_put_back()

    def test_what_is_left_is_said(self) -> None:
        self.write(self.look())
        self.domain.refuse = self.refuse
        self.assertFalse(self.made.stop(PATIENCE_S))
        self.assertEqual(('u',), self.records.uuids())


class TestLeaving(DomainsCase):
    def assert_not_written(self) -> None:
        self.write(self.made.guests['u'])
        self.made.set_shares('u', 7)
        self.assertEqual(fake_libvirt.ORIGINAL, self.domain.values)

    def test_found_after_nova_has_said_so(self) -> None:
        self.made.let_leave(frozenset({'u'}))
        self.look()
        self.made.let_leave(frozenset({'u'}))
        self.assert_not_written()
        self.made.let_leave(frozenset())
        self.write(self.made.guests['u'])
        self.assertEqual(8_000, self.domain.values[cputune.QUOTA])

    def test_paused_and_resumed(self) -> None:
        self.look()
        self.made.let_leave(frozenset({'u'}))
        self.made.pause()
        self.drain()
        self.made.resume()
        self.assert_not_written()

    def test_restored_by_an_operator_and_staying(self) -> None:
        self.look()
        self.made.let_leave(frozenset({'u'}))
        self.made.restore_one('u')
        self.made.let_leave(frozenset())
        self.drain()
        self.assert_not_written()
