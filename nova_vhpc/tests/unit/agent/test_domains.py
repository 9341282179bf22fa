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
from unittest import mock

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
    undo,
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

    def test_what_others_wrote_at_the_last_moment_stays(self) -> None:
        self.write(self.look())
        self.domain.values[cputune.SHARES] = 333
        self.assertTrue(self.made.stop(PATIENCE_S))
        self.assertEqual(
            {**fake_libvirt.ORIGINAL, cputune.SHARES: 333}, self.domain.values
        )
        self.assertEqual((), self.records.uuids())

    def test_also_what_a_window_has_written_over(self) -> None:
        target = self.look()
        self.made.set_shares('u', 20)
        target.shares_theirs = 333
        self.assertTrue(self.made.stop(PATIENCE_S))
        self.assertEqual(333, self.domain.values[cputune.SHARES])

    def test_unless_our_values_go_over_theirs(self) -> None:
        self.made = self.make(foreign_changes='override')
        self.write(self.look())
        self.domain.values[cputune.SHARES] = 333
        self.assertTrue(self.made.stop(PATIENCE_S))
        self.assertEqual(fake_libvirt.ORIGINAL, self.domain.values)

    def test_what_is_left_is_said(self) -> None:
        self.write(self.look())
        self.domain.refuse = self.refuse
        self.assertFalse(self.made.stop(PATIENCE_S))
        self.assertEqual(('u',), self.records.uuids())

    def test_one_that_hangs_holds_up_no_other(self) -> None:
        """With one thread, and long before ``call_deadline``."""
        other = fake_libvirt.Domain('other')
        self.made = self.make(workers=1, call_deadline=PATIENCE_S)
        self.made.connection.get().domains['other'] = other
        self.write(self.look())
        self.made.look('other')
        self.drain()
        self.write(self.made.guests['other'])
        # The one that hangs comes first.
        self.assertEqual(['u', 'other'], list(self.made.guests))
        go = threading.Event()
        self.addCleanup(go.set)
        self.domain.refuse = lambda: self.assertTrue(go.wait(PATIENCE_S))
        other.refuse = go.set
        with mock.patch.object(domains, 'ENDING_DEADLINE_S', 0.1):
            self.assertTrue(self.made.stop(PATIENCE_S / 2))
        self.assertEqual(fake_libvirt.ORIGINAL, other.values)
        self.assert_put_back()

    def test_nobody_waits_for_what_will_not_be_tried(self) -> None:
        hung = threading.Event()
        self.addCleanup(hung.set)
        target = self.look()
        self.write(target)
        self.domain.refuse = lambda: hung.wait(PATIENCE_S)
        tried = self.made.restore_one('u')
        self.assertIsNotNone(tried)
        self.assertFalse(self.made.stop(0.3))
        self.assertEqual(undo.ENDING, tried.result(timeout=0))


class TestPutBack(DomainsCase):
    def test_late_events_of_our_writes_are_known_as_ours(self) -> None:
        target = self.look()
        self.made.set_shares('u', 20)
        self.made.pause()
        self.drain()
        self.assert_put_back()
        self.assertEqual({20, 1024}, target.shares_ours)


class TestOptingOut(DomainsCase):
    def test_while_it_migrates_and_then_does_not(self) -> None:
        target = self.look()
        self.write(target)
        self.domain.job = libvirt.VIR_DOMAIN_JOB_UNBOUNDED
        self.look()
        self.assertIn(guest.Hold.MIGRATING, target.holds)
        self.domain.specs = {}
        self.reconcile()
        self.assertEqual(8_000, self.domain.values[cputune.PERIOD])
        self.domain.job = 0
        self.reconcile()
        self.assert_put_back()


class TestLeaving(DomainsCase):
    def assert_not_written(self) -> None:
        self.write(self.made.guests['u'])
        self.made.set_shares('u', 7)
        self.assertEqual(fake_libvirt.ORIGINAL, self.domain.values)

    def test_found_after_nova_has_said_so(self) -> None:
        self.made.let_leave(frozenset({'u'}))
        self.assertEqual('leaving', self.look().hands_off)
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

    def test_found_in_the_very_moment(self) -> None:
        """Neither saw the other: the next tick does."""
        target = self.look()
        self.made._gate.leaving = frozenset({'u'})
        self.made.let_leave(frozenset({'u'}))
        self.assertEqual('leaving', target.hands_off)
        self.made.let_leave(frozenset())

    def test_found_while_paused(self) -> None:
        self.made.pause()
        self.assertEqual('paused', self.look().hands_off)
        self.made.resume()
        self.assertTrue(self.made.guests['u'].free_to_write)
