# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""QEMU processes in a made /proc."""

import os
import pathlib
import shutil
import tempfile
from unittest import mock

from oslotest import base

from nova_vhpc.linux import qemu_process

UUID = '8d4b6e9a-0000-4000-8000-000000000001'
V1 = '9:name=systemd:/\n4:cpuset:/machine/qemu-1-x.libvirt-qemu/emulator\n'
SCOPE = 'machine.slice/machine-qemu\\x2d1\\x2dx.scope'
V2 = f'0::/{SCOPE}/libvirt/emulator\n'


class TestProcesses(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.proc = pathlib.Path(tempfile.mkdtemp())
        self.cgroup = pathlib.Path(tempfile.mkdtemp())
        self.host = qemu_process.Processes(str(self.proc), str(self.cgroup))

    def process(
        self,
        pid: int,
        uuid: str,
        names: dict[int, str],
        groups: str = V1,
        emulator: bytes = b'/usr/bin/qemu-system-x86_64',
        start_ticks: int = 19,
    ) -> None:
        path = self.proc / str(pid)
        (path / 'task').mkdir(parents=True)
        (path / 'cmdline').write_bytes(
            b'\0'.join([emulator, b'-uuid', uuid.encode(), b''])
        )
        self.started(pid, start_ticks)
        (path / 'cgroup').write_text(groups)
        for tid, name in names.items():
            (path / 'task' / str(tid)).mkdir()
            (path / 'task' / str(tid) / 'comm').write_text(name + '\n')

    def started(self, pid: int, start_ticks: int) -> None:
        """Write when a process started."""
        fields = [*range(1, 19), start_ticks, *range(20, 40)]
        (self.proc / str(pid) / 'stat').write_text(
            f'{pid} (qemu) (x) S ' + ' '.join(map(str, fields))
        )

    def test_line_without_colons_is_skipped(self) -> None:
        self.process(10, UUID, {}, groups='4\n' + V1)
        self.assertEqual((), self.host.vcpu_threads(10, (0,)))
        self.assertIsNone(self.host.weight_file(10, 10))

    def test_group_with_bytes_for_thread_gives_no_threads(self) -> None:
        for content in (b'x', b'\xa1', b'9' * 5000, b''):
            self.process(10, UUID, {}, groups=f'0::/{SCOPE}/emulator\n')
            group = self.cgroup / SCOPE / 'vcpu0'
            group.mkdir(parents=True)
            (group / 'cgroup.threads').write_bytes(content)
            self.assertEqual((), self.host.vcpu_threads(10, (0,)))
            shutil.rmtree(self.cgroup / 'machine.slice')
            shutil.rmtree(self.proc / '10')

    def test_boot_id_of_any_bytes_is_read(self) -> None:
        path = self.proc / 'sys/kernel/random'
        path.mkdir(parents=True)
        (path / 'boot_id').write_bytes(b'\xa1x\n')
        self.assertEqual('\ufffdx', self.host.boot_id())

    def test_group_that_is_no_path_is_of_no_domain(self) -> None:
        self.process(10, UUID, {}, groups='0::/a\0b/qemu-1-x\n')
        self.assertEqual(0, self.host.find(UUID))

    def test_process_is_found_by_uuid(self) -> None:
        self.process(10, UUID, {})
        self.process(11, 'another', {})
        self.assertEqual(10, self.host.find(UUID))
        self.assertEqual(0, self.host.find('none'))

    def test_pid_that_another_program_has_now_is_not_found(self) -> None:
        self.process(10, UUID, {})
        self.assertEqual(10, self.host.find(UUID))
        (self.proc / '10' / 'cmdline').write_bytes(b'bash\0')
        self.assertEqual(0, self.host.find(UUID))

    def test_pid_that_an_impostor_has_now_is_not_found(self) -> None:
        self.process(10, UUID, {})
        self.assertEqual(10, self.host.find(UUID))
        self.started(10, 99)
        (self.proc / '10/cgroup').write_text('0::/user.slice/x.scope\n')
        self.assertEqual(0, self.host.find(UUID))

    def test_emulator_of_any_name_is_found(self) -> None:
        for pid, emulator in enumerate(
            (b'/usr/bin/kvm', b'\xff\xfe', b''), 10
        ):
            self.process(pid, f'{UUID}{pid}', {}, emulator=emulator)
            self.assertEqual(pid, self.host.find(f'{UUID}{pid}'))

    def test_process_outside_of_libvirts_groups_is_not_found(self) -> None:
        """Anyone may start one with these arguments, before QEMU or after."""
        for pid, groups in (
            (5, '4:cpuset:/\n1:name=systemd:/machine/qemu-1-x/emulator\n'),
            (6, '0::/user.slice/user-1000.slice/session-1.scope\n'),
            (7, '0::/system.slice/docker-1.scope/machine/qemu-1-x\n'),
            (8, '0::/../docker-1.scope/machine.slice/qemu-1-x\n'),
            (9, ''),
        ):
            self.process(pid, UUID, {}, groups, start_ticks=1)
        self.assertEqual(0, self.host.find(UUID))
        self.process(10, UUID, {}, V2)
        self.assertEqual(10, self.host.find(UUID))
        self.assertEqual(10, self.host.find(UUID, 1))

    def test_process_in_a_users_group_of_that_name_is_not_found(self) -> None:
        """systemd leaves ``user@1000.service`` to its user."""
        group = self.cgroup / 'user.slice/user@1000.service/machine-qemu-1-x'
        group.mkdir(parents=True)
        path = group.relative_to(self.cgroup)
        self.process(10, UUID, {}, f'0::/{path}/libvirt/emulator\n')
        # Not the user who runs the tests, whom the agent believes, too.
        for user, found in ((os.geteuid() + 1, 0), (0, 10)):
            status = mock.Mock(st_uid=user)
            with mock.patch.object(pathlib.Path, 'stat', return_value=status):
                self.assertEqual(found, self.host.find(UUID))

    def test_guest_that_claims_the_uuid_of_another_is_not_found(self) -> None:
        """QEMU can overwrite its own arguments."""
        self.process(10, UUID, {}, V2.replace('x2d1', 'x2d7'), start_ticks=1)
        self.assertEqual(0, self.host.find(UUID, 1))
        self.process(11, UUID, {}, V2, start_ticks=2)
        self.assertEqual(11, self.host.find(UUID, 1))
        self.assertEqual(10, self.host.find(UUID, 7))

    def test_fork_of_qemu_is_not_found_for_qemu(self) -> None:
        self.process(10, UUID, {}, start_ticks=9)
        self.process(9, UUID, {}, start_ticks=30)
        self.assertEqual(10, self.host.find(UUID))

    def test_found_from_another_cgroup_namespace(self) -> None:
        """The host's hierarchy need not be mounted there."""
        self.process(10, UUID, {}, '0::/../..' + V2.removeprefix('0::'))
        self.assertEqual(10, self.host.find(UUID, 1))

    def test_bytes_that_are_no_text_stop_nothing(self) -> None:
        self.process(8, 'x', {})
        (self.proc / '8/cmdline').write_bytes(b'\xff\0-uuid\0\xff\0')
        self.process(9, 'y', {})
        (self.proc / '9/cgroup').write_bytes(b'0::/\xff/qemu-1-\xff\n')
        self.process(10, UUID, {20: 'CPU 0/KVM', 21: ''})
        (self.proc / '10/task/21/comm').write_bytes(b'\xff\n')
        (self.proc / '10/stat').write_bytes(
            (self.proc / '10/stat').read_bytes().replace(b'x', b'\xff')
        )
        self.assertEqual(10, self.host.find(UUID))
        self.assertEqual(19, self.host.start_ticks(10))
        self.assertEqual((20,), self.host.vcpu_threads(10, range(1)))
        self.assertEqual((), self.host.vcpu_cgroups(9, range(1)))

    def test_identities_differ_by_boot_pid_or_start_time(self) -> None:
        one = qemu_process.Identity('boot', 10, 5, 1)
        self.assertTrue(one.same_run(qemu_process.Identity('boot', 10, 5, 9)))
        self.assertFalse(one.same_run(qemu_process.Identity('boot', 10, 6, 1)))
        self.assertFalse(one.same_run(qemu_process.Identity('new', 10, 5, 1)))
        self.assertTrue(one.same_run(qemu_process.Identity('boot', 0, 0, 1)))

    def test_start_time_is_read_despite_brackets_in_the_name(self) -> None:
        self.process(10, UUID, {})
        self.assertEqual(19, self.host.start_ticks(10))

    def test_vcpu_threads_are_found_by_name(self) -> None:
        self.process(
            10,
            UUID,
            {10: 'qemu', 21: 'CPU 1/KVM', 20: 'CPU 0/KVM', 22: 'IO mon'},
        )
        self.assertEqual((20, 21), self.host.vcpu_threads(10, range(2)))
        self.assertEqual((), self.host.vcpu_threads(10, range(3)))

    def test_vcpu_threads_are_found_by_cgroup_v1(self) -> None:
        self.process(10, UUID, {20: 'x', 21: 'x'})
        (self.proc / '10/cgroup').write_text(
            '5:cpu,cpuacct:/machine/qemu-1-x/emulator\n1:name=systemd:/\n'
        )
        for vcpu, tid in ((0, 21), (1, 20)):
            group = self.cgroup / f'cpu/machine/qemu-1-x/vcpu{vcpu}'
            group.mkdir(parents=True)
            (group / 'tasks').write_text(f'{tid}\n')
        self.assertEqual((21, 20), self.host.vcpu_threads(10, range(2)))

    def test_vcpu_threads_are_found_by_cgroup_v2(self) -> None:
        self.process(10, UUID, {20: 'x'})
        (self.proc / '10/cgroup').write_text(
            '0::/machine.slice/machine-qemu\\x2d1\\x2dx.scope/libvirt/emulator\n'
        )
        base_group = self.cgroup.joinpath(
            'machine.slice', 'machine-qemu\\x2d1\\x2dx.scope', 'libvirt'
        )
        (base_group / 'vcpu0').mkdir(parents=True)
        (base_group / 'vcpu0/cgroup.threads').write_text('20\n')
        (base_group / 'io.stat').write_text('')
        self.assertEqual((20,), self.host.vcpu_threads(10, range(1)))
        self.assertEqual(base_group, self.host.block_cgroup(10))

    def test_groups_of_systemd_scopes_are_found(self) -> None:
        """systemd escapes the hyphens in the names of scopes."""
        self.process(10, UUID, {20: 'x'})
        scope = 'machine.slice/machine-qemu\\x2d1\\x2dx.scope'
        (self.proc / '10/cgroup').write_text(f'3:blkio:/{scope}/libvirt\n')
        (self.proc / '10/task/20/cgroup').write_text(
            f'5:cpu,cpuacct:/{scope}/libvirt/vcpu0\n'
        )
        for group in ('cpu', 'blkio'):
            (self.cgroup / group / scope / 'libvirt').mkdir(parents=True)
        for group in (scope, f'{scope}/libvirt'):
            (self.cgroup / 'cpu' / group / 'cpu.shares').write_text('1024\n')
        blkio = self.cgroup / 'blkio' / scope / 'libvirt'
        (blkio / 'blkio.throttle.io_serviced').write_text('')
        self.assertEqual(blkio, self.host.block_cgroup(10))
        self.assertEqual(
            self.cgroup / 'cpu' / scope / 'cpu.shares',
            self.host.weight_file(10, 20),
        )

    def test_weight_file_is_found_without_systemd(self) -> None:
        self.process(10, UUID, {20: 'x'})
        (self.proc / '10/task/20/cgroup').write_text(
            '0::/machine/qemu-1-x/vcpu12\n'
        )
        group = self.cgroup / 'machine/qemu-1-x'
        self.assertIsNone(self.host.weight_file(10, 20))
        group.mkdir(parents=True)
        self.assertIsNone(self.host.weight_file(10, 20))
        (group / 'cpu.weight').write_text('100\n')
        self.assertEqual(group / 'cpu.weight', self.host.weight_file(10, 20))

    def test_cpu_set_of_a_domains_group_is_read(self) -> None:
        self.process(10, UUID, {})
        cgroup_file = self.proc / '10/cgroup'
        cgroup_file.write_text('4:cpuset:/machine/qemu-1-x/emulator\n0::/\n')
        self.assertIsNone(self.host.cpuset(10))
        group = self.cgroup / 'cpuset/machine/qemu-1-x'
        group.mkdir(parents=True)
        (group / 'cpuset.cpus').write_text('0-1,3\n')
        self.assertEqual({0, 1, 3}, self.host.cpuset(10))
        # A process outside of any domain's group has no CPU set.
        (self.cgroup / 'cpuset/cpuset.cpus').write_text('0-3\n')
        cgroup_file.write_text('4:cpuset:/\n0::/\n')
        self.assertIsNone(self.host.cpuset(10))
        self.assertIsNone(self.host.cpuset(0))

    def test_no_cpu_set_if_cgroup_v2_has_an_empty_one(self) -> None:
        self.process(10, UUID, {})
        (self.proc / '10/cgroup').write_text('0::/m/qemu-1-x/libvirt/emulator')
        group = self.cgroup / 'm/qemu-1-x/libvirt'
        group.mkdir(parents=True)
        (group / 'cpuset.cpus').write_text('\n')
        self.assertIsNone(self.host.cpuset(10))

    def test_guest_is_confined_to_the_cpus_of_its_slice(self) -> None:
        """With ``AllowedCPUs=`` in the slice; libvirt does not report it."""
        self.process(10, UUID, {})
        scope = 'machine.slice/machine-qemu\\x2d1\\x2dx.scope'
        cgroup_file = self.proc / '10/cgroup'
        cgroup_file.write_text(f'0::/{scope}/libvirt/emulator\n')
        own = self.cgroup / scope / 'libvirt'
        own.mkdir(parents=True)
        self.assertIsNone(self.host.confined_to(10))
        for group in (own, *own.parents[:3]):
            (group / 'cgroup.controllers').write_text('cpuset cpu\n')
        for group in (own, *own.parents[:2]):
            (group / 'cpuset.cpus').write_text('\n')
        self.assertIsNone(self.host.confined_to(10))
        (self.cgroup / 'machine.slice/cpuset.cpus').write_text('2-5\n')
        self.assertEqual({2, 3, 4, 5}, self.host.confined_to(10))
        (self.cgroup / scope / 'cpuset.cpus').write_text('4-7\n')
        self.assertEqual({4, 5}, self.host.confined_to(10))
        # If the sets are disjoint, the kernel applies that of the slice.
        (self.cgroup / scope / 'cpuset.cpus').write_text('0-1\n')
        self.assertEqual({2, 3, 4, 5}, self.host.confined_to(10))
        # With cgroup v1 the write fails and the guest is quarantined.
        cgroup_file.write_text('4:cpuset:/machine/qemu-1-x/emulator\n0::/\n')
        self.assertIsNone(self.host.confined_to(10))

    def test_no_weight_file_for_a_process_in_a_shared_group(self) -> None:
        """libvirt has put this QEMU into no group of its own."""
        self.process(10, UUID, {20: 'x'})
        (self.proc / '10/task/20/cgroup').write_text(
            '0::/system.slice/qemu-kvm\n'
        )
        (self.cgroup / 'system.slice').mkdir()
        (self.cgroup / 'system.slice/cpu.weight').write_text('100\n')
        self.assertIsNone(self.host.weight_file(10, 20))
