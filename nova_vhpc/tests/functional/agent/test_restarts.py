# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""VMs that are destroyed and started anew while they are written."""

import itertools
import threading
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from unittest import mock

import libvirt
from oslo_config import cfg

from nova_vhpc.agent.actuators import libvirt_cputune
from nova_vhpc.agent.guests import guest
from nova_vhpc.agent.journal import store
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.agent.lifecycle import manager, restore_queue
from nova_vhpc.agent.probes import sampler
from nova_vhpc.conf import agent as agent_conf
from nova_vhpc.control import model
from nova_vhpc.linux import qemu_process
from nova_vhpc.tests.functional.agent import base
from nova_vhpc_lab.testbed.patience import PATIENCE_S

RESTARTS = 10
WRITING_S = 0.2


class TestRestarts(base.AgentTestCase):
    """libvirt carries out on the new run what has waited for the old one."""

    def setUp(self) -> None:
        super().setUp()
        self.started = self.domain({'vhpc:workload': 'parallel'})
        self.uuid = self.started.UUIDString()
        self.ended = threading.Event()

    def make(self, **options: str) -> manager.GuestManager:
        """All of the agent that calls libvirt; the tests decide."""
        conf = cfg.ConfigOpts()
        agent_conf.register_opts(conf)
        conf([], default_config_files=[])
        for name, value in {
            'libvirt_uri': self.daemon.uri,
            'window_weights': 'libvirt',
            **options,
        }.items():
            conf.set_override(name, value, 'vhpc_agent')
        records = store.Journal(str(self.path))
        records.prepare()
        made = manager.GuestManager(
            conf,
            records,
            qemu_process.Processes(),
            sampler.Sampler([], []),
            libvirt_cputune.LibvirtCputuneActuator(conf),
            lambda: frozenset({0, 1}),
            mock.Mock(),
        )
        made.start()
        self.addCleanup(made.close)
        return made

    def taken_in(self, made: manager.GuestManager) -> guest.Guest:
        """The VM as it runs now."""

        def found() -> guest.Guest | None:
            target = made.guests.get(self.uuid)
            now = target is not None and (
                target.domain_id == self.started.ID()
            )
            return target if now else None

        target: guest.Guest = self.wait_for(found, 'the VM to be taken in')
        return target

    def play(self, made: manager.GuestManager) -> None:
        """Windows, all the time."""
        for shares in itertools.cycle((20, 4000)):
            if self.ended.wait(0.002):
                return
            try:
                made.set_shares(self.uuid, shares)
            except (libvirt.libvirtError, TimeoutError):
                # As it is not running, or a worker writes.
                continue

    def tick(self, made: manager.GuestManager) -> None:
        """Ticks that want something else each time."""
        for cpu in itertools.cycle((0, 1)):
            if self.ended.wait(0.02):
                return
            target = made.guests.get(self.uuid)
            if target is not None:
                pins = (frozenset({cpu}), frozenset({1 - cpu}))
                made.write(
                    target, model.CpuTune(8_000 + cpu, 4_000, vcpu_pins=pins)
                )

    def in_thread(
        self,
        call: Callable[[manager.GuestManager], None],
        made: manager.GuestManager,
    ) -> None:
        thread = threading.Thread(target=call, args=(made,))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.ended.set)

    def test_misdirected_write_of_a_killed_agent_is_reverted(self) -> None:
        before = base.everything(self.started)
        for restored in (True, False):
            process = self.start_agent(period_ms=30)
            self.wait_for_period(self.started)
            process.kill()
            process.join()
            records = store.Journal(str(self.path / 'state'))
            written = dict(records.load(self.uuid).written)
            self.started.destroy()
            self.started.create()
            # What libvirt carries out on this run instead.
            period, quota, pin = (
                next(iter(written[name]))
                for name in (
                    cputune.PERIOD,
                    cputune.QUOTA,
                    cputune.pin_name(0),
                )
            )
            cputune.write_bandwidth(self.started, period, quota, before[0])
            cputune.write_pin(self.started, 0, pin, 2)
            self.assertNotEqual(before, base.everything(self.started))
            if restored:
                self.assertEqual(0, self.restore())
            else:
                # The next agent takes it for what it is, too.
                process = self.start_agent()
                self.wait_for_period(self.started)
                self.assertEqual(0, self.stop_agent(process))
            self.assertEqual(before, base.everything(self.started))
            self.assertEqual((), records.uuids())

    def test_original_of_old_run_is_not_restored_into_new_run(self) -> None:
        """It is resized and started, and nobody has looked at it yet."""
        made = self.make(foreign_changes='override')
        target = self.taken_in(made)
        made.write(target, model.CpuTune(8_000, 8_000))
        self.assertTrue(made.executor.drain(PATIENCE_S))
        self.assertEqual(8_000, self.period(self.started))
        with mock.patch.object(made._events, '_enqueue'):
            self.started.destroy()
            root = ElementTree.fromstring(self.started.XMLDesc())
            root.remove(root.find('metadata'))
            tune = ElementTree.fromstring(
                f'<cputune>{base.OWN_QUOTA}</cputune>'
            )
            root.insert(list(root).index(root.find('vcpu')) + 1, tune)
            self.conn.defineXML(ElementTree.tostring(root, 'unicode'))
            self.started.create()
            before = base.everything(self.started)
            done = made.pause()[self.uuid].result(PATIENCE_S)
        self.assertEqual(before, base.everything(self.started))
        self.assertEqual(restore_queue.GONE, done)
        self.assertTrue(made.stop(PATIENCE_S))

    def test_writes_for_old_run_do_not_stay_in_new_run(self) -> None:
        before = base.everything(self.started)
        made = self.make()
        first = self.taken_in(made).original
        self.in_thread(self.play, made)
        self.in_thread(self.tick, made)
        for number in range(RESTARTS):
            self.ended.wait(WRITING_S)
            self.started.destroy()
            self.started.create()
            self.assertEqual(first, self.taken_in(made).original, number)
        self.ended.set()
        self.assertTrue(made.stop(PATIENCE_S))
        self.assertEqual(before, base.everything(self.started))
