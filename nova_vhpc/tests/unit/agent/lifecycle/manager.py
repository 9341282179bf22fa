# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A guest manager whose libvirt is in memory, for several test modules."""

import pathlib
import tempfile
from typing import Any

import libvirt
from oslo_config import cfg
from oslotest import base

from nova_vhpc.agent.actuators import libvirt_cputune
from nova_vhpc.agent.guests.guest import Guest
from nova_vhpc.agent.journal import store
from nova_vhpc.agent.lifecycle import manager
from nova_vhpc.agent.probes import sampler
from nova_vhpc.conf import agent as agent_conf
from nova_vhpc.control import model
from nova_vhpc.linux import qemu_process
from nova_vhpc.tests.unit import waiting
from nova_vhpc.tests.unit.agent import fake_libvirt

TUNE = model.CpuTune(8_000, 8_000)
PATIENCE_S = waiting.PATIENCE_S


class ManagerTestCase(base.BaseTestCase):
    """All parts of the agent that call libvirt; only libvirt is a fake."""

    def setUp(self) -> None:
        super().setUp()
        self.state = tempfile.mkdtemp()
        self.domain = fake_libvirt.Domain()
        self.forgotten_shares: list[str] = []
        self.manager = self.make()

    def make(self, **options: Any) -> manager.GuestManager:
        conf = cfg.ConfigOpts()
        agent_conf.register_opts(conf)
        conf([], default_config_files=[])
        # Whatever CPUs the machine has that the tests run on.
        online = pathlib.Path(self.state, 'sys/devices/system/cpu/online')
        online.parent.mkdir(parents=True, exist_ok=True)
        online.write_text('0-1')
        options = {'sys_root': str(online.parents[3]), **options}
        for name, value in options.items():
            conf.set_override(name, value, 'vhpc_agent')
        self.journal = store.Journal(self.state)
        self.actuator: Any = libvirt_cputune.LibvirtCputuneActuator(conf)
        made = manager.GuestManager(
            conf,
            self.journal,
            qemu_process.Processes('/nowhere', '/nowhere'),
            sampler.Sampler([], []),
            self.actuator,
            lambda: frozenset({0, 1}),
            self.forgotten_shares.append,
        )
        made.connection._conn = fake_libvirt.Link(self.domain)
        self.addCleanup(made.executor.close)
        return made

    def look(self) -> Guest:
        """Reconcile the domain, and return its guest."""
        self.manager.enqueue('u')
        self.drain()
        return self.manager.guests['u']

    def drain(self) -> None:
        self.assertTrue(self.manager.executor.drain(PATIENCE_S))

    def write(self, guest: Guest) -> None:
        self.manager.write(guest, TUNE)
        self.drain()

    def reconcile(self) -> None:
        self.manager._resync._resync(0)
        self.drain()

    def refuse(self) -> None:
        raise fake_libvirt.error(libvirt.VIR_ERR_OPERATION_TIMEOUT, 'busy')

    def assert_put_back(self) -> None:
        self.assertEqual(fake_libvirt.ORIGINAL, self.domain.values)
        self.assertEqual((), self.journal.uuids())
        self.assertIsNone(self.domain.metadata_xml)
