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

"""A window that is open when a migration begins does not stay open."""

import dataclasses
import pathlib
import tempfile
from unittest import mock
from xml.etree import ElementTree

import libvirt

from nova_vhpc.agent.guests import guest
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


class TestMigratingWeight(manager_case.ManagerTestCase):
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
        self.made._reconciler._context = dataclasses.replace(
            self.made._context, processes=self.processes
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

    def migrate(self, shares: int = 40_960) -> guest.Guest:
        """Have a window open, and then a migration begin."""
        self.look()
        self.made.set_shares('u', shares)
        self.file.write_text(f'{shares}\n')
        self.domain.job = libvirt.VIR_DOMAIN_JOB_UNBOUNDED
        return self.look()

    def weight(self) -> int:
        return int(self.file.read_text())

    def test_favoured_or_starved(self) -> None:
        for shares in (40_960, 20):
            self.domain.job = 0
            target = self.migrate(shares)
            self.assertEqual(1024, self.weight())
            self.assertEqual(1024, target.in_force.shares)

    def test_below_a_scope_of_systemd(self) -> None:
        below = self.group(V2, f'{SCOPE}/libvirt', 'cpu.weight')
        below.write_text('20')
        self.file = self.root / 'cgroup' / SCOPE / 'cpu.weight'
        self.migrate(20)
        self.assertEqual(1024, self.weight())
        self.assertEqual('20', below.read_text())

    def test_what_is_not_ours(self) -> None:
        self.look()
        self.made.set_shares('u', 20)
        self.file.write_text('77\n')
        self.domain.job = libvirt.VIR_DOMAIN_JOB_UNBOUNDED
        self.assertFalse(self.look().weight_restored_by_file)
        self.assertEqual(77, self.weight())

    def test_without_a_control_group(self) -> None:
        target = self.look()
        self.made.set_shares('u', 20)
        self.domain.job = libvirt.VIR_DOMAIN_JOB_UNBOUNDED
        self.look()
        self.assertFalse(target.weight_restored_by_file)

    def killed(self, written: written_values.WrittenValues | None) -> int:
        """An agent is killed in a window, then libvirt takes no writes.

        It does not tell either for how long, as where it waits for the VM.

        :param written: what its record says that it may have written.
        :returns: the weight, once the next one has tried to put it back.
        """
        self.look()
        self.made.set_shares('u', 20)
        self.made._context.permission.ending.set()
        self.domain.values[cputune.SHARES] = 20
        self.file.write_text('20\n')
        self.domain.refuse = self.refuse
        record = self.records.load('u')
        self.records.save(dataclasses.replace(record, written=written))
        restorer = recovery.Restorer(self.records, self.processes)
        with mock.patch.object(self.domain, 'jobInfo', self.refuse):
            self.assertRaises(
                libvirt.libvirtError, restorer.recover, self.domain
            )
        return self.weight()

    def test_given_back_by_the_record(self) -> None:
        self.assertEqual(1024, self.killed({cputune.SHARES: frozenset({20})}))

    def test_given_back_where_anything_may_be_ours(self) -> None:
        """As after more weights than are noted one by one."""
        self.assertEqual(1024, self.killed({cputune.SHARES: None}))

    def test_not_given_back_what_is_somebody_elses(self) -> None:
        for written in ({cputune.SHARES: frozenset({30})}, {}):
            self.domain.refuse = lambda: None
            self.assertEqual(20, self.killed(written))

    def test_not_into_a_file_that_libvirt_does_not_read(self) -> None:
        self.killed({cputune.SHARES: None})
        self.file.write_text('77\n')
        restorer = recovery.Restorer(self.records, self.processes)
        self.assertRaises(libvirt.libvirtError, restorer.recover, self.domain)
        self.assertEqual(77, self.weight())

    def test_given_back_by_an_older_agents_record(self) -> None:
        self.assertEqual(1024, self.killed(None))

    def told(self) -> int:
        """The weight that libvirt knows of; it reads the file for others."""
        found = ElementTree.fromstring(self.domain.XMLDesc(0))
        return int(found.findtext('./cputune/shares', '0'))

    def test_libvirt_is_told_though_the_agent_has_ended(self) -> None:
        """Or systemd would begin the window anew, at a daemon-reload."""
        domain = self.domain
        write = domain.setSchedulerParametersFlags

        def tell(values: dict[str, int], flags: int) -> None:
            write(values, flags)
            domain.extra = SHARES.format(domain.values[cputune.SHARES])

        domain.setSchedulerParametersFlags = tell
        self.migrate(20)
        self.assertEqual(20, self.told())
        domain.values[cputune.SHARES] = self.weight()
        domain.refuse = self.refuse
        self.assertFalse(self.made.stop(1.0))
        domain.refuse = lambda: None
        domain.job = 0
        restorer = recovery.Restorer(
            self.records, qemu_process.Processes('/x')
        )
        self.assertIs(recovery.Outcome.RESTORED, restorer.recover(self.domain))
        self.assertEqual(1024, self.told())
        self.assert_put_back()

    def test_libvirt_is_told_by_an_agent_that_ends(self) -> None:
        target = self.migrate(20)
        self.domain.extra = SHARES.format(20)
        self.domain.values[cputune.SHARES] = self.weight()
        self.domain.written.clear()
        self.domain.job = 0
        self.assertTrue(self.made.stop(manager_case.PATIENCE_S))
        self.assertIn('values', self.domain.written)
        self.assertFalse(target.journalled)

    def test_libvirt_is_told_when_it_stays(self) -> None:
        target = self.migrate(20)
        self.assertEqual(20, self.domain.values[cputune.SHARES])
        self.domain.job = 0
        self.look()
        self.assertEqual(1024, self.domain.values[cputune.SHARES])
        self.assertEqual(frozenset(), target.external)
        self.assertFalse(target.weight_restored_by_file)
        self.assertTrue(self.made.set_shares('u', 40_960))
