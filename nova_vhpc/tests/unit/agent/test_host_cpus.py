# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of :mod:`nova_vhpc.agent.host_cpus`."""

import os
import pathlib
import tempfile
from unittest import mock

import fixtures
from oslotest import base

from nova_vhpc.agent import errors, host_cpus
from nova_vhpc.control import model


class TestSharedCpus(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.root = tempfile.mkdtemp()
        self.file = pathlib.Path(self.root, 'devices/system/cpu/online')
        self.file.parent.mkdir(parents=True)
        self.present = self.file.with_name('present')
        self.present.write_text('0-7\n')
        self.switch('0-7')
        self.now_s = 0.0
        self.useFixture(
            fixtures.MockPatchObject(
                host_cpus.time, 'monotonic', lambda: self.now_s
            )
        )

    def switch(self, online: str) -> None:
        self.file.write_text(online + '\n')

    def ids(self, made: host_cpus.SharedCpus) -> list[int]:
        self.now_s += host_cpus.LOOK_S
        ids = [cpu.id for cpu in made.described()]
        self.assertEqual(set(ids), made.usable())
        return ids

    def test_cpus_that_go_offline_return_once_online(self) -> None:
        made = host_cpus.SharedCpus('2-5', self.root)
        self.assertEqual([2, 3, 4, 5], self.ids(made))
        self.switch('0-3')
        with self.assertLogs(host_cpus.LOG, 'WARNING') as logs:
            self.assertEqual([2, 3], self.ids(made))
            self.assertEqual([2, 3], self.ids(made))
        (line,) = logs.output
        self.assertIn('2-3 from now on, 2-5 before', line)
        self.assertEqual({4, 5, 6, 7}, made.off())
        self.switch('0-7')
        self.assertEqual([2, 3, 4, 5], self.ids(made))
        self.assertEqual(set(), made.off())

    def test_all_online_cpus_are_used_without_a_shared_set(self) -> None:
        self.switch('0-3')
        made = host_cpus.SharedCpus(None, self.root)
        self.assertEqual([0, 1, 2, 3], self.ids(made))
        self.switch('0-7')
        self.assertEqual(list(range(8)), self.ids(made))

    def test_last_cpus_are_kept_if_none_is_online(self) -> None:
        made = host_cpus.SharedCpus('4', self.root)
        self.switch('0-3')
        self.assertEqual([4], self.ids(made))

    def test_unchanged_cpus_are_the_same_object(self) -> None:
        made = host_cpus.SharedCpus(None, self.root)
        first = made.described()
        self.now_s += host_cpus.LOOK_S
        self.assertIs(first, made.described())

    def test_file_is_not_read_in_each_tick(self) -> None:
        made = host_cpus.SharedCpus(None, self.root)
        with mock.patch('pathlib.Path.read_text') as read:
            for _ in range(9):
                self.now_s += host_cpus.LOOK_S / 10
                made.described()
        self.assertEqual(0, read.call_count)

    def test_offline_cpus_of_the_shared_set_are_logged_at_start(self) -> None:
        self.switch('0-3')
        with self.assertLogs(host_cpus.LOG, 'WARNING') as logs:
            made = host_cpus.SharedCpus('2-5', self.root)
        (line,) = logs.output
        self.assertIn('4-5 are switched off; VMs may be pinned to 2-3', line)
        self.assertEqual({4, 5}, made.missing())
        self.assertEqual({4, 5, 6, 7}, made.off())
        self.assertEqual([2, 3], self.ids(made))
        self.switch('0-7')
        self.assertEqual([2, 3, 4, 5], self.ids(made))

    def test_other_offline_cpus_are_not_logged_at_start(self) -> None:
        self.switch('0-3')
        with self.assertNoLogs(host_cpus.LOG, 'WARNING'):
            made = host_cpus.SharedCpus('2', self.root)
            self.assertEqual(set(), made.missing())
            made = host_cpus.SharedCpus(None, self.root)
        self.assertEqual({4, 5, 6, 7}, made.missing())

    def test_shared_set_that_is_all_offline_is_refused(self) -> None:
        self.switch('0-3')
        error = self.assertRaises(
            errors.ConfigError, host_cpus.SharedCpus, '4-5', self.root
        )
        self.assertIn('switched off', str(error))

    def test_affinity_of_the_agent_is_ignored_at_start_and_later(self) -> None:
        """As with systemd's CPUAffinity=, or AllowedCPUs= set meanwhile."""
        affinity = os.sched_getaffinity(0)
        self.addCleanup(os.sched_setaffinity, 0, affinity)
        for shared_set, expected in ((None, range(8)), ('2-5', range(2, 6))):
            os.sched_setaffinity(0, affinity)
            made = host_cpus.SharedCpus(shared_set, self.root)
            os.sched_setaffinity(0, {min(affinity)})
            self.assertEqual(list(expected), self.ids(made))
            made = host_cpus.SharedCpus(shared_set, self.root)
            self.assertEqual(list(expected), self.ids(made))

    def test_isolated_cpus_are_left_out(self) -> None:
        self.file.with_name('isolated').write_text('4-7\n')
        made = host_cpus.SharedCpus(None, self.root)
        self.assertEqual([0, 1, 2, 3], self.ids(made))

    def test_no_isolated_cpus(self) -> None:
        """Both files of a kernel that has neither option."""
        self.file.with_name('isolated').write_text('\n')
        self.file.with_name('nohz_full').write_text(' (null)\n')
        with self.assertNoLogs(host_cpus.LOG, 'WARNING'):
            made = host_cpus.SharedCpus(None, self.root)
        self.assertEqual(list(range(8)), self.ids(made))

    def test_isolated_cpus_of_the_option_are_left_out_and_logged(self) -> None:
        self.file.with_name('isolated').write_text('5-7\n')
        with self.assertLogs(host_cpus.LOG, 'WARNING') as logs:
            made = host_cpus.SharedCpus('2-6', self.root)
        (line,) = logs.output
        self.assertIn('CPUs 5-6 are isolated', line)
        self.assertIn('VMs are pinned to 2-4 only', line)
        self.assertEqual([2, 3, 4], self.ids(made))

    def test_option_with_isolated_cpus_only_is_refused(self) -> None:
        self.file.with_name('isolated').write_text('4-7\n')
        error = self.assertRaises(
            errors.ConfigError, host_cpus.SharedCpus, '4-5', self.root
        )
        self.assertIn("cpu_shared_set = '4-5'", str(error))
        self.assertIn('isolated', str(error))
        self.assertIn('0-3', str(error))

    def test_isolated_cpu_that_is_off_is_not_waited_for(self) -> None:
        self.switch('0-3')
        self.file.with_name('isolated').write_text('7\n')
        made = host_cpus.SharedCpus(None, self.root)
        self.assertEqual({4, 5, 6}, made.missing())

    def test_cpus_of_an_isolated_partition_go_and_come_back(self) -> None:
        isolated = pathlib.Path(self.root, 'cpuset.cpus.isolated')
        isolated.write_text('\n')
        made = host_cpus.SharedCpus(None, self.root, self.root)
        self.assertEqual(list(range(8)), self.ids(made))
        isolated.write_text('6-7\n')
        with self.assertLogs(host_cpus.LOG, 'WARNING'):
            self.assertEqual([0, 1, 2, 3, 4, 5], self.ids(made))
        isolated.write_text('\n')
        self.assertEqual(list(range(8)), self.ids(made))

    def test_nohz_full_cpus_stay_and_are_logged(self) -> None:
        self.file.with_name('nohz_full').write_text('6-7\n')
        with self.assertLogs(host_cpus.LOG, 'WARNING') as logs:
            made = host_cpus.SharedCpus(None, self.root)
        (line,) = logs.output
        self.assertIn('CPUs 6-7 have nohz_full', line)
        self.assertEqual(list(range(8)), self.ids(made))
        with self.assertNoLogs(host_cpus.LOG, 'WARNING'):
            host_cpus.SharedCpus('0-5', self.root)

    def test_shared_set_with_missing_cpus_is_refused(self) -> None:
        for _ in range(2):
            self.assertRaises(
                errors.ConfigError, host_cpus.SharedCpus, '7-8', self.root
            )
            # Not every kernel has this file.
            self.present.unlink(missing_ok=True)


class TestUsableCpus(base.BaseTestCase):
    def test_usable_cpus_are_those_of_the_option_or_all(self) -> None:
        root = self.sysfs('0-7')
        self.assertEqual({2, 3, 5}, host_cpus.usable_cpus('2-5,^4', root))
        self.assertEqual(
            frozenset(range(8)), host_cpus.usable_cpus(None, root)
        )

    def test_wrong_option_error_names_option_value_and_allowed(self) -> None:
        root = self.sysfs('0-3')
        for text in ('9', '0-x'):
            error = self.assertRaises(
                errors.ConfigError, host_cpus.usable_cpus, text, root
            )
            self.assertIn('cpu_shared_set', str(error))
            self.assertIn(f"'{text}'", str(error))
            self.assertIn('allowed', str(error))

    def test_host_cpus_have_socket_and_last_level_cache(self) -> None:
        root = self.sysfs('0-1')
        base_path = pathlib.Path(root, 'devices/system/cpu')
        for cpu, socket in ((0, 0), (1, 1)):
            topology = base_path / f'cpu{cpu}/topology'
            topology.mkdir(parents=True)
            (topology / 'physical_package_id').write_text(f'{socket}\n')
            (topology / 'core_id').write_text('7\n')
            for index, level, shared in ((0, 1, f'{cpu}'), (1, 3, '0-1')):
                cache = base_path / f'cpu{cpu}/cache/index{index}'
                cache.mkdir(parents=True)
                (cache / 'level').write_text(f'{level}\n')
                (cache / 'shared_cpu_list').write_text(f'{shared}\n')
        described = host_cpus.host_cpus({1, 0}, root)
        self.assertEqual([0, 1], [cpu.id for cpu in described])
        self.assertEqual([0, 1], [cpu.socket for cpu in described])
        self.assertEqual([0, 0], [cpu.llc for cpu in described])

    def described(self, topologies: list[dict[str, str]]) -> list[model.Cpu]:
        """Return the CPUs of a host with these files in ``topology``."""
        root = self.sysfs('0')
        for cpu, files in enumerate(topologies):
            topology = pathlib.Path(
                root, f'devices/system/cpu/cpu{cpu}/topology'
            )
            topology.mkdir(parents=True)
            for name, text in files.items():
                (topology / name).write_text(f'{text}\n')
        return list(host_cpus.host_cpus(range(len(topologies)), root))

    def test_core_ids_that_repeat_are_different_cores(self) -> None:
        """RISC-V SG2042: four in each of 16 clusters, no cache known."""
        found = self.described(
            [
                {
                    'physical_package_id': '0',
                    'core_id': str(cpu % 4),
                    'core_cpus_list': str(cpu),
                }
                for cpu in range(64)
            ]
        )
        self.assertEqual(
            64, len({(cpu.socket, cpu.llc, cpu.core) for cpu in found})
        )

    def test_threads_with_different_core_ids_are_one_core(self) -> None:
        """As in the guests of some hypervisors; and before Linux 5.3."""
        for name in ('core_cpus_list', 'thread_siblings_list'):
            found = self.described(
                [
                    {'core_id': str(cpu), name: f'{cpu % 2},{cpu % 2 + 2}'}
                    for cpu in range(4)
                ]
            )
            self.assertEqual([0, 1, 0, 1], [cpu.core for cpu in found])

    def test_package_ids_that_repeat_are_different_sockets(self) -> None:
        """s390: they begin anew in each book."""
        for name in ('package_cpus_list', 'core_siblings_list'):
            found = self.described(
                [
                    {
                        'physical_package_id': '0',
                        name: '0-1' if cpu < 2 else '2-3',
                    }
                    for cpu in range(4)
                ]
            )
            self.assertEqual([0, 0, 2, 2], [cpu.socket for cpu in found])

    def test_cpus_without_topology_are_cores_of_one_socket(self) -> None:
        for files in ({}, {'physical_package_id': '-1', 'core_id': '-1'}):
            found = self.described(
                [{**files, 'package_cpus_list': str(cpu)} for cpu in range(3)]
            )
            self.assertEqual([0, 0, 0], [cpu.socket for cpu in found])
            self.assertEqual([0, 1, 2], [cpu.core for cpu in found])

    def sysfs(self, online: str) -> str:
        root = tempfile.mkdtemp()
        path = pathlib.Path(root, 'devices/system/cpu')
        path.mkdir(parents=True)
        (path / 'online').write_text(online + '\n')
        return root
