# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Slices of this process's threads in the running kernel."""

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
    """Writes to threads of this process, without the privsep daemon."""

    def setUp(self) -> None:
        super().setUp()
        privileged.CONTEXT.set_client_mode(False)
        self.addCleanup(privileged.CONTEXT.set_client_mode, True)

    def test_slice_is_written_and_undone_or_a_reason_given(self) -> None:
        actuator = kernel_slice.KernelSliceActuator(None)
        reason = actuator.check()
        if reason is not None:
            # The kernel is too old; the reason names its version.
            self.assertIn(platform.release(), reason)
            return
        gate = threading.Event()
        thread = threading.Thread(target=gate.wait)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(gate.set)
        assert thread.native_id is not None
        before = sched_attr.get_slice_us(thread.native_id)
        guest = test_guest.make(tids=(thread.native_id,))
        actuator.write(guest, model.CpuTune(), 5_000)
        self.assertEqual(5_000, sched_attr.get_slice_us(thread.native_id))
        actuator.undo(guest)
        self.assertEqual(before, sched_attr.get_slice_us(thread.native_id))
        # A second undo does nothing.
        actuator.undo(guest)
        self.assertEqual(before, sched_attr.get_slice_us(thread.native_id))

    def test_reused_thread_id_gets_the_slice_again(self) -> None:
        actuator = kernel_slice.KernelSliceActuator(None)
        with mock.patch.object(privileged, 'set_slice_us') as write:
            actuator.write(test_guest.make(tids=(7,)), TUNE, 5_000)
            guest = test_guest.make(tids=(7,))
            actuator.undo(guest)
            write.assert_called_once()
            actuator.write(guest, TUNE, 5_000)
            actuator.write(guest, TUNE, 5_000)
        self.assertEqual([mock.call([7], 5_000)] * 2, write.mock_calls)

    def test_ended_threads_are_no_failure(self) -> None:
        actuator = kernel_slice.KernelSliceActuator(None)
        guest = test_guest.make(tids=(2**22 - 1,))
        actuator.write(guest, model.CpuTune(), 5_000)
        actuator.undo(guest)

    def test_reset_without_a_process_does_nothing(self) -> None:
        kernel_slice.reset(qemu_process.Processes(), 0, range(2))
