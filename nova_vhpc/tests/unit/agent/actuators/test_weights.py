# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


import pathlib
import tempfile
import types
from unittest import mock

import libvirt
from oslotest import base

from nova_vhpc.agent.actuators import weights
from nova_vhpc.agent.guests import guest
from nova_vhpc.agent.libvirt import cgroup_weight, cputune
from nova_vhpc.control import model
from nova_vhpc.linux import qemu_process
from nova_vhpc.tests.unit.agent import fake_libvirt
from nova_vhpc.tests.unit.agent.external_changes import policy_case
from nova_vhpc.tests.unit.agent.guests import test_guest
from nova_vhpc.tests.unit.agent.libvirt import idle_kernel


class GroupDomain(policy_case.Domain):
    """A domain that reads its weight from a file, as libvirt does."""

    def __init__(self, path: pathlib.Path) -> None:
        super().__init__()
        self.path = path
        self.writes = 0

    def schedulerParametersFlags(self, flags: int = 0) -> dict[str, int]:
        self.values[cputune.SHARES] = cgroup_weight.read(self.path)
        return super().schedulerParametersFlags(flags)

    def setSchedulerParametersFlags(
        self, changes: dict[str, int], flags: int = 0
    ) -> None:
        self.writes += 1
        super().setSchedulerParametersFlags(changes, flags)
        self.path.write_text(str(self.values[cputune.SHARES]))


class WeightsCase(base.BaseTestCase):
    """Has a guest whose weight is in a file."""

    def setUp(self) -> None:
        super().setUp()
        self.kernel = self.useFixture(idle_kernel.IdleKernel())
        self.path = pathlib.Path(tempfile.mkdtemp()) / 'cpu.weight'
        self.path.write_text('1024\n')
        self.host = mock.Mock(spec=qemu_process.Processes)
        self.host.find.return_value = 77
        self.host.weight_file.return_value = self.path
        self.domain = GroupDomain(self.path)
        self.guest = self.make()

    def make(self) -> guest.Guest:
        guest = test_guest.make(journalled=True)
        guest.domain = self.domain
        guest.tids = (78, 79)
        guest.original = cputune.read(self.domain)
        guest.set_expected(guest.original)
        return guest

    def weights(self, way: str = 'cgroup') -> weights.Weights:
        return weights.Weights(
            types.SimpleNamespace(
                window_weights=way, cgroup_root=str(self.path.parent)
            ),
            self.host,
        )


class TestWeights(WeightsCase):
    def test_weight_is_written_to_the_file(self) -> None:
        writing = self.weights()
        for shares in (40960, 20, 7):
            writing.write(self.guest, shares)
            self.assertEqual(str(shares), self.path.read_text())
            self.assertEqual(shares, self.guest.in_force.shares)
        self.assertEqual(0, self.domain.writes)
        # The file is searched once per run.
        self.host.weight_file.assert_called_once_with(77, 78)

    def assert_by_libvirt(self, writing: weights.Weights) -> None:
        for shares in (40960, 20):
            writing.write(self.guest, shares)
            self.assertEqual(str(shares), self.path.read_text())
            self.assertEqual(shares, self.guest.in_force.shares)
        self.assertEqual(2, self.domain.writes)
        self.assertFalse(self.guest.may_be_agents_shares(1024))

    def test_libvirt_writes_if_configured(self) -> None:
        self.assert_by_libvirt(self.weights('libvirt'))
        self.assertIsNone(self.guest.weight_file)

    def test_libvirt_writes_without_a_file(self) -> None:
        self.host.weight_file.return_value = None
        self.assert_by_libvirt(self.weights())

    def test_file_of_the_main_thread_is_used_if_no_vcpu_is_known(self) -> None:
        self.guest.tids = ()
        self.weights().write(self.guest, 20)
        self.host.weight_file.assert_called_once_with(77, 77)

    def test_libvirt_writes_without_a_process(self) -> None:
        self.host.find.return_value = 0
        self.assert_by_libvirt(self.weights())

    def test_libvirt_writes_if_it_reads_another_file(self) -> None:
        other = self.path.parent / 'other' / 'cpu.weight'
        other.parent.mkdir()
        other.write_text('500')
        self.host.weight_file.return_value = other
        self.assert_by_libvirt(self.weights())
        self.assertEqual('500', other.read_text())

    def test_libvirt_writes_if_the_file_cannot_be_written(self) -> None:
        with mock.patch.object(
            pathlib.Path, 'write_text', side_effect=PermissionError(13, 'no')
        ):
            problem = cgroup_weight.WeightFile(self.path).write(
                self.domain, 20
            )
        self.assertIn(str(self.path), problem)
        self.host.weight_file.return_value = self.path.parent
        self.assert_by_libvirt(self.weights())

    def test_vanished_file_is_not_tried_again(self) -> None:
        writing = self.weights()
        writing.write(self.guest, 20)
        with mock.patch.object(
            pathlib.Path, 'write_text', side_effect=OSError(19, 'gone')
        ) as write:
            for _ in range(2):
                # The fake libvirt writes the file, too.
                self.assertRaises(OSError, writing.write, self.guest, 30)
            self.assertEqual(3, write.call_count)
        self.assertEqual(2, self.domain.writes)

    def test_value_that_was_in_the_file_proves_nothing(self) -> None:
        other = self.path.parent / 'other' / 'cpu.weight'
        other.parent.mkdir()
        other.write_text('1024')
        self.host.weight_file.return_value = other
        writing = self.weights()
        writing.write(self.guest, 1024)
        self.assertFalse(self.guest.uses_weight_file)
        self.assert_by_libvirt(writing)
        self.assertEqual('1024', other.read_text())

    def test_weight_is_reverted_if_libvirt_cannot_report_it(self) -> None:
        gone = fake_libvirt.refused('gone')
        with mock.patch.object(
            self.domain, 'schedulerParametersFlags', side_effect=gone
        ):
            self.assertRaises(
                libvirt.libvirtError, self.weights().write, self.guest, 20
            )
        self.assertEqual('1024', self.path.read_text())
        self.assertEqual(1024, self.guest.in_force.shares)

    def test_original_reset_by_systemd_may_be_the_agents(self) -> None:
        self.assertFalse(self.guest.may_be_agents_shares(1024))
        self.weights().write(self.guest, 20)
        self.assertTrue(self.guest.may_be_agents_shares(1024))
        self.assertFalse(self.guest.may_be_agents_shares(512))


class TestRestoreByFile(WeightsCase):
    """Windows write the file; test_migrating_weight tests libvirt's writes."""

    def restored_by_file(self) -> str:
        self.weights().write(self.guest, 20)
        self.guest.event_history.written_shares.add(20)
        weights.restore_by_file(self.guest, self.host)
        return self.path.read_text()

    def test_weight_restored_by_file_is_not_written_by_libvirt(self) -> None:
        self.assertEqual('1024', self.restored_by_file())
        self.assertEqual(1024, self.guest.in_force.shares)
        weights.restore_by_libvirt(self.guest)
        self.assertEqual(0, self.domain.writes)

    def test_external_weight_is_not_restored(self) -> None:
        self.guest.external = frozenset({cputune.SHARES})
        self.assertEqual('20', self.restored_by_file())
        self.guest.external = frozenset()
        self.guest.event_history.external_shares = 20
        self.assertEqual('20', self.restored_by_file())

    def test_weight_of_a_restored_guest_stays(self) -> None:
        # A weight set since then is not the agent's.
        self.guest.journalled = False
        self.assertEqual('20', self.restored_by_file())

    def test_weight_stays_if_the_file_cannot_be_written(self) -> None:
        self.weights().write(self.guest, 20)
        self.guest.event_history.written_shares.add(20)
        with mock.patch.object(
            pathlib.Path, 'write_text', side_effect=OSError(19, 'gone')
        ):
            weights.restore_by_file(self.guest, self.host)
        self.assertEqual(20, self.guest.in_force.shares)
        self.host.find.return_value = 0
        weights.restore_by_file(self.guest, self.host)
        self.assertEqual(20, self.guest.in_force.shares)


class TestIdle(WeightsCase):
    """Groups of gangs that are out of turn."""

    def setUp(self) -> None:
        super().setUp()
        self.idle = self.path.with_name('cpu.idle')
        self.idle.write_text('0\n')

    def test_guest_is_idle_by_its_file_and_not_idle_afterwards(self) -> None:
        writing = self.weights()
        for weight in (0, 1):
            self.kernel.weight = weight
            writing.write(self.guest, model.IDLE_SHARES)
            self.assertEqual('1', self.idle.read_text())
            self.assertEqual(weight, self.guest.in_force.shares)
            writing.write(self.guest, 40_960)
            self.assertEqual(
                ('0', '40960'), (self.idle.read_text(), self.path.read_text())
            )
            self.assertEqual(40_960, self.guest.in_force.shares)
        self.assertEqual(0, self.domain.writes)

    def test_default_weight_may_be_seen_before_the_next_weight(self) -> None:
        # The kernel gives it to a group that ends to be idle.
        self.assertEqual(
            (model.DEFAULT_SHARES_V1, 3),
            self.weights().seen(model.IDLE_SHARES),
        )
        self.assertEqual((20,), self.weights().seen(20))
        with mock.patch.object(weights.cgroup, 'cpu_is_v2', return_value=True):
            self.assertEqual(
                (model.DEFAULT_SHARES_V2, 0, 1),
                self.weights().seen(model.IDLE_SHARES),
            )

    def test_guest_gets_the_least_weight_where_only_libvirt_writes(
        self,
    ) -> None:
        self.weights('libvirt').write(self.guest, model.IDLE_SHARES)
        self.assertEqual('3', self.path.read_text())
        self.assertEqual('0\n', self.idle.read_text())

    def test_weight_of_an_idle_guest_is_restored_by_file(self) -> None:
        self.weights().write(self.guest, model.IDLE_SHARES)
        self.guest.event_history.written_shares.add(0)
        weights.restore_by_file(self.guest, self.host)
        self.assertEqual(
            ('0', '1024'), (self.idle.read_text(), self.path.read_text())
        )

    def end_idle(self, written: weights.written_values.WrittenValues) -> str:
        self.idle.write_text('1')
        weights.end_idle('u', 1, written, self.host)
        return self.idle.read_text()

    def test_idle_ends_if_the_agent_may_have_caused_it(self) -> None:
        self.host.vcpu_threads.return_value = (78,)
        for idle in (0, 1):
            shares = frozenset({idle, 40_960})
            self.assertEqual('0', self.end_idle({cputune.SHARES: shares}))
        self.assertEqual('0', self.end_idle({cputune.SHARES: None}))

    def test_idle_that_somebody_else_set_stays(self) -> None:
        self.host.vcpu_threads.return_value = (78,)
        for written in ({}, {cputune.SHARES: frozenset({20})}):
            self.assertEqual('1', self.end_idle(written))

    def test_guest_without_a_process_or_file_is_left(self) -> None:
        self.host.vcpu_threads.return_value = ()
        self.host.weight_file.return_value = None
        self.assertEqual('1', self.end_idle({cputune.SHARES: None}))
        self.host.find.return_value = 0
        self.assertEqual('1', self.end_idle({cputune.SHARES: None}))

    def test_kernel_that_refuses_is_logged_and_does_not_raise(self) -> None:
        self.host.vcpu_threads.return_value = (78,)
        self.idle.write_text('1')
        refused = PermissionError(13, 'no')
        with (
            mock.patch.object(pathlib.Path, 'write_text', side_effect=refused),
            self.assertLogs(weights.LOG, 'WARNING') as logs,
        ):
            weights.end_idle('u', 1, {cputune.SHARES: None}, self.host)
        self.assertIn('stays idle', logs.output[0])
