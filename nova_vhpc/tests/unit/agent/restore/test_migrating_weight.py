# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Weights of guests whose migration begins during a gang window."""

import dataclasses
import pathlib
import tempfile
from unittest import mock
from xml.etree import ElementTree

import libvirt

from nova_vhpc.agent.guests.guest import Guest
from nova_vhpc.agent.journal import written_values
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.agent.restore import recovery
from nova_vhpc.linux import qemu_process
from nova_vhpc.tests.unit.agent.lifecycle import manager as manager_case

PID = 42
GROUP = 'machine/qemu-1-vm.libvirt-qemu'
V1 = f'5:cpu,cpuacct:/{GROUP}/emulator\n0::/\n'
SCOPE = 'machine.slice/machine-qemu\\x2d1\\x2dvm.scope'
V2 = f'0::/{SCOPE}/libvirt/emulator\n'
SHARES = '<cputune><shares>{}</shares></cputune>'


class MigratingWeightTest(manager_case.ManagerTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.root = pathlib.Path(tempfile.mkdtemp())
        process = self.root / 'proc' / str(PID)
        process.mkdir(parents=True)
        (process / 'cmdline').write_bytes(b'/usr/bin/qemu\0-uuid\0u\0')
        (process / 'stat').write_text('42 (qemu) S ' + '1 ' * 40)
        self.processes = qemu_process.Processes(
            str(self.root / 'proc'), str(self.root / 'cgroup')
        )
        self.manager._reconciler._context = dataclasses.replace(
            self.manager._context, processes=self.processes
        )
        self.file = self.group(
            V1, 'cpu,cpuacct/machine/qemu-1-vm.libvirt-qemu'
        )

    def group(
        self, text: str, path: str, name: str = 'cpu.shares'
    ) -> pathlib.Path:
        (self.root / 'proc' / str(PID) / 'cgroup').write_text(text)
        group = self.root / 'cgroup' / path
        group.mkdir(parents=True)
        return group / name

    def migrate(self, shares: int = 40_960) -> Guest:
        """Open a window, then begin a migration."""
        self.look()
        self.manager.set_shares('u', shares)
        self.file.write_text(f'{shares}\n')
        self.domain.job = libvirt.VIR_DOMAIN_JOB_UNBOUNDED
        return self.look()

    def weight(self) -> int:
        return int(self.file.read_text())

    def test_window_weight_is_restored_by_the_file(self) -> None:
        for shares in (40_960, 20):
            self.domain.job = 0
            guest = self.migrate(shares)
            self.assertEqual(1024, self.weight())
            self.assertEqual(1024, guest.in_force.shares)

    def test_weight_below_a_systemd_scope_is_restored(self) -> None:
        below = self.group(V2, f'{SCOPE}/libvirt', 'cpu.weight')
        below.write_text('20')
        self.file = self.root / 'cgroup' / SCOPE / 'cpu.weight'
        self.migrate(20)
        self.assertEqual(1024, self.weight())
        self.assertEqual('20', below.read_text())

    def test_external_weight_stays(self) -> None:
        self.look()
        self.manager.set_shares('u', 20)
        self.file.write_text('77\n')
        self.domain.job = libvirt.VIR_DOMAIN_JOB_UNBOUNDED
        self.assertFalse(self.look().weight_restored_by_file)
        self.assertEqual(77, self.weight())

    def test_guest_without_control_group_is_not_written(self) -> None:
        guest = self.look()
        self.manager.set_shares('u', 20)
        self.domain.job = libvirt.VIR_DOMAIN_JOB_UNBOUNDED
        self.look()
        self.assertFalse(guest.weight_restored_by_file)

    def killed(self, written: written_values.WrittenValues) -> int:
        """Kill the agent in a window; libvirt takes no writes after that.

        It does not tell either for how long, as where it waits for the VM.

        :param written: what its record says that it may have written.
        :returns: the weight, once the next one has tried to put it back.
        """
        self.look()
        self.manager.set_shares('u', 20)
        self.manager._context.permission.ending.set()
        self.domain.values[cputune.SHARES] = 20
        self.file.write_text('20\n')
        self.domain.refuse = self.refuse
        record = self.journal.load('u')
        self.journal.save(dataclasses.replace(record, written=written))
        restorer = recovery.Restorer(self.journal, self.processes)
        with mock.patch.object(self.domain, 'jobInfo', self.refuse):
            self.assertRaises(
                libvirt.libvirtError, restorer.recover, self.domain
            )
        return self.weight()

    def test_recorded_weight_is_restored(self) -> None:
        self.assertEqual(1024, self.killed({cputune.SHARES: frozenset({20})}))

    def test_weight_is_restored_if_any_value_may_be_written(self) -> None:
        """More weights were written than are recorded one by one."""
        self.assertEqual(1024, self.killed({cputune.SHARES: None}))

    def test_external_weight_is_not_restored(self) -> None:
        for written in ({cputune.SHARES: frozenset({30})}, {}):
            self.domain.refuse = lambda: None
            self.assertEqual(20, self.killed(written))

    def test_file_that_libvirt_does_not_read_is_not_written(self) -> None:
        self.killed({cputune.SHARES: None})
        self.file.write_text('77\n')
        restorer = recovery.Restorer(self.journal, self.processes)
        self.assertRaises(libvirt.libvirtError, restorer.recover, self.domain)
        self.assertEqual(77, self.weight())

    def known_to_libvirt(self) -> int:
        """Return the weight in libvirt's XML; reads return the file's."""
        found = ElementTree.fromstring(self.domain.XMLDesc(0))
        return int(found.findtext('./cputune/shares', '0'))

    def test_weight_is_written_to_libvirt_after_a_crash(self) -> None:
        """Otherwise systemd would write it again at a daemon-reload."""
        domain = self.domain
        write = domain.setSchedulerParametersFlags

        def tell(values: dict[str, int], flags: int) -> None:
            write(values, flags)
            domain.extra = SHARES.format(domain.values[cputune.SHARES])

        domain.setSchedulerParametersFlags = tell
        self.migrate(20)
        self.assertEqual(20, self.known_to_libvirt())
        domain.values[cputune.SHARES] = self.weight()
        domain.refuse = self.refuse
        self.assertFalse(self.manager.stop(1.0))
        domain.refuse = lambda: None
        domain.job = 0
        restorer = recovery.Restorer(
            self.journal, qemu_process.Processes('/x')
        )
        self.assertIs(recovery.Outcome.RESTORED, restorer.recover(self.domain))
        self.assertEqual(1024, self.known_to_libvirt())
        self.assert_put_back()

    def test_weight_is_written_to_libvirt_while_the_agent_ends(self) -> None:
        guest = self.migrate(20)
        self.domain.extra = SHARES.format(20)
        self.domain.values[cputune.SHARES] = self.weight()
        self.domain.written.clear()
        self.domain.job = 0
        self.assertTrue(self.manager.stop(manager_case.PATIENCE_S))
        self.assertIn('values', self.domain.written)
        self.assertFalse(guest.journalled)

    def test_weight_is_written_to_libvirt_if_the_guest_stays(self) -> None:
        guest = self.migrate(20)
        self.assertEqual(20, self.domain.values[cputune.SHARES])
        self.domain.job = 0
        self.look()
        self.assertEqual(1024, self.domain.values[cputune.SHARES])
        self.assertEqual(frozenset(), guest.external)
        self.assertFalse(guest.weight_restored_by_file)
        self.assertTrue(self.manager.set_shares('u', 40_960))
