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

"""Slices of the running kernel's own threads."""

import platform
import threading
from unittest import mock

from oslotest import base

from nova_vhpc.agent.actuators import kernel_slice, privileged
from nova_vhpc.control import model
from nova_vhpc.linux import qemu_process, sched_attr
from nova_vhpc.tests.unit.agent.guests import test_guest

TUNE = model.CpuTune()


class TestKernelSlice(base.BaseTestCase):
    """On threads of our own, so without a daemon."""

    def setUp(self) -> None:
        super().setUp()
        privileged.CONTEXT.set_client_mode(False)
        self.addCleanup(privileged.CONTEXT.set_client_mode, True)

    def test_write_and_undo_or_a_reason(self) -> None:
        actuator = kernel_slice.KernelSliceActuator(None)
        reason = actuator.check()
        if reason is not None:
            # An old kernel: it must say so, in words.
            self.assertIn(platform.release(), reason)
            return
        gate = threading.Event()
        thread = threading.Thread(target=gate.wait)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(gate.set)
        assert thread.native_id is not None
        before = sched_attr.get_slice_us(thread.native_id)
        target = test_guest.make(tids=(thread.native_id,))
        actuator.write(target, model.CpuTune(), 5_000)
        self.assertEqual(5_000, sched_attr.get_slice_us(thread.native_id))
        actuator.undo(target)
        self.assertEqual(before, sched_attr.get_slice_us(thread.native_id))
        # A second undo has nothing to do.
        actuator.undo(target)
        self.assertEqual(before, sched_attr.get_slice_us(thread.native_id))

    def test_another_vm_with_the_thread_id_of_one_that_ended(self) -> None:
        actuator = kernel_slice.KernelSliceActuator(None)
        with mock.patch.object(privileged, 'set_slice_us') as write:
            actuator.write(test_guest.make(tids=(7,)), TUNE, 5_000)
            target = test_guest.make(tids=(7,))
            actuator.undo(target)
            write.assert_called_once()
            actuator.write(target, TUNE, 5_000)
            actuator.write(target, TUNE, 5_000)
        self.assertEqual([mock.call([7], 5_000)] * 2, write.mock_calls)

    def test_gone_threads_are_no_failure(self) -> None:
        actuator = kernel_slice.KernelSliceActuator(None)
        target = test_guest.make(tids=(2**22 - 1,))
        actuator.write(target, model.CpuTune(), 5_000)
        actuator.undo(target)

    def test_reset_of_no_process(self) -> None:
        kernel_slice.reset(qemu_process.Processes(), 0, 2)
