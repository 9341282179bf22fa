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


import pathlib
import tempfile
import types
from unittest import mock

import libvirt
from oslotest import base

from nova_vhpc.agent.actuators import weights
from nova_vhpc.agent.guests import guest
from nova_vhpc.agent.libvirt import cgroup_weight, cputune
from nova_vhpc.linux import qemu_process
from nova_vhpc.tests.unit.agent import fake_libvirt
from nova_vhpc.tests.unit.agent.external_changes import policy_case
from nova_vhpc.tests.unit.agent.guests import test_guest


class GroupDomain(policy_case.Domain):
    """Reads its weight from a file, as libvirt does."""

    def __init__(self, path: pathlib.Path) -> None:
        super().__init__()
        self.path = path
        self.writes = 0

    def schedulerParametersFlags(self, flags: int = 0) -> dict[str, int]:
        self.values[cputune.SHARES] = int(self.path.read_text())
        return super().schedulerParametersFlags(flags)

    def setSchedulerParametersFlags(
        self, changes: dict[str, int], flags: int = 0
    ) -> None:
        self.writes += 1
        super().setSchedulerParametersFlags(changes, flags)
        self.path.write_text(str(self.values[cputune.SHARES]))


class WeightsCase(base.BaseTestCase):
    """A VM whose weight stands in a file."""

    def setUp(self) -> None:
        super().setUp()
        self.path = pathlib.Path(tempfile.mkdtemp()) / 'cpu.weight'
        self.path.write_text('1024\n')
        self.host = mock.Mock(spec=qemu_process.Processes)
        self.host.find.return_value = 77
        self.host.weight_file.return_value = self.path
        self.domain = GroupDomain(self.path)
        self.target = self.make()

    def make(self) -> guest.Guest:
        target = test_guest.make(journalled=True)
        target.domain = self.domain
        target.tids = (78, 79)
        target.original = cputune.read(self.domain)
        target.set_expected(target.original)
        return target

    def weights(self, way: str = 'cgroup') -> weights.Weights:
        return weights.Weights(
            types.SimpleNamespace(window_weights=way), self.host
        )


class TestWeights(WeightsCase):
    def test_into_the_file(self) -> None:
        writing = self.weights()
        for shares in (40960, 20, 7):
            writing.write(self.target, shares)
            self.assertEqual(str(shares), self.path.read_text())
            self.assertEqual(shares, self.target.in_force.shares)
        self.assertEqual(0, self.domain.writes)
        # Looked for once in a run.
        self.host.weight_file.assert_called_once_with(77, 78)

    def assert_by_libvirt(self, writing: weights.Weights) -> None:
        for shares in (40960, 20):
            writing.write(self.target, shares)
            self.assertEqual(str(shares), self.path.read_text())
            self.assertEqual(shares, self.target.in_force.shares)
        self.assertEqual(2, self.domain.writes)
        self.assertFalse(self.target.may_be_agents_shares(1024))

    def test_by_libvirt_if_that_is_wanted(self) -> None:
        self.assert_by_libvirt(self.weights('libvirt'))
        self.assertIsNone(self.target.weight_file)

    def test_by_libvirt_without_a_file(self) -> None:
        self.host.weight_file.return_value = None
        self.assert_by_libvirt(self.weights())

    def test_by_the_main_thread_where_no_vcpu_is_known(self) -> None:
        self.target.tids = ()
        self.weights().write(self.target, 20)
        self.host.weight_file.assert_called_once_with(77, 77)

    def test_by_libvirt_without_a_process(self) -> None:
        self.host.find.return_value = 0
        self.assert_by_libvirt(self.weights())

    def test_by_libvirt_if_it_reads_another_file(self) -> None:
        other = self.path.with_name('other')
        other.write_text('500')
        self.host.weight_file.return_value = other
        self.assert_by_libvirt(self.weights())
        self.assertEqual('500', other.read_text())

    def test_by_libvirt_where_the_file_cannot_be_written(self) -> None:
        with mock.patch.object(
            pathlib.Path, 'write_text', side_effect=PermissionError(13, 'no')
        ):
            problem = cgroup_weight.WeightFile(self.path).write(
                self.domain, 20
            )
        self.assertIn(str(self.path), problem)
        self.host.weight_file.return_value = self.path.parent
        self.assert_by_libvirt(self.weights())

    def test_a_file_that_goes_is_not_tried_again(self) -> None:
        writing = self.weights()
        writing.write(self.target, 20)
        with mock.patch.object(
            pathlib.Path, 'write_text', side_effect=OSError(19, 'gone')
        ) as write:
            for _ in range(2):
                # libvirt's stand-in writes the file, too.
                self.assertRaises(OSError, writing.write, self.target, 30)
            self.assertEqual(3, write.call_count)
        self.assertEqual(2, self.domain.writes)

    def test_a_value_that_was_there_proves_nothing(self) -> None:
        other = self.path.with_name('other')
        other.write_text('1024')
        self.host.weight_file.return_value = other
        writing = self.weights()
        writing.write(self.target, 1024)
        self.assertFalse(self.target.uses_weight_file)
        self.assert_by_libvirt(writing)
        self.assertEqual('1024', other.read_text())

    def test_put_back_if_libvirt_cannot_tell(self) -> None:
        gone = fake_libvirt.refused('gone')
        with mock.patch.object(
            self.domain, 'schedulerParametersFlags', side_effect=gone
        ):
            self.assertRaises(
                libvirt.libvirtError, self.weights().write, self.target, 20
            )
        self.assertEqual('1024\n', self.path.read_text())
        self.assertEqual(1024, self.target.in_force.shares)

    def test_what_systemd_puts_back_is_nobody_elses(self) -> None:
        self.assertFalse(self.target.may_be_agents_shares(1024))
        self.weights().write(self.target, 20)
        self.assertTrue(self.target.may_be_agents_shares(1024))
        self.assertFalse(self.target.may_be_agents_shares(512))


class TestGiveBack(WeightsCase):
    """Where windows write the file; test_migrating_weight has the rest."""

    def restored_by_file(self) -> str:
        self.weights().write(self.target, 20)
        self.target.event_history.written_shares.add(20)
        weights.restore_by_file(self.target, self.host)
        return self.path.read_text()

    def test_libvirt_need_not_be_told(self) -> None:
        self.assertEqual('1024', self.restored_by_file())
        self.assertEqual(1024, self.target.in_force.shares)
        weights.restore_by_libvirt(self.target)
        self.assertEqual(0, self.domain.writes)

    def test_not_what_somebody_else_has_set(self) -> None:
        self.target.external = frozenset({cputune.SHARES})
        self.assertEqual('20', self.restored_by_file())
        self.target.external = frozenset()
        self.target.event_history.external_shares = 20
        self.assertEqual('20', self.restored_by_file())

    def test_not_in_a_vm_that_was_put_back(self) -> None:
        # What it weighs since then is its own, or somebody else's.
        self.target.journalled = False
        self.assertEqual('20', self.restored_by_file())

    def test_not_where_it_cannot_be_written(self) -> None:
        self.weights().write(self.target, 20)
        self.target.event_history.written_shares.add(20)
        with mock.patch.object(
            pathlib.Path, 'write_text', side_effect=OSError(19, 'gone')
        ):
            weights.restore_by_file(self.target, self.host)
        self.assertEqual(20, self.target.in_force.shares)
        self.host.find.return_value = 0
        weights.restore_by_file(self.target, self.host)
        self.assertEqual(20, self.target.in_force.shares)
