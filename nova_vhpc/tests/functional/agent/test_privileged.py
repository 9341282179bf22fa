# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A real privsep daemon, on threads of the test and of a guest."""

import errno
import platform
import threading

import libvirt
from oslo_config import cfg
from oslotest import base as oslo_base

from nova_vhpc.agent.actuators import kernel_slice, privileged
from nova_vhpc.linux import qemu_process, sched_attr
from nova_vhpc.tests.functional.agent import base
from nova_vhpc_lab.testbed.patience import PATIENCE_S


class TestDaemon(oslo_base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.addCleanup(privileged.CONTEXT.stop)

    def test_slice_is_set_and_reset(self) -> None:
        reason = kernel_slice.KernelSliceActuator(None).check()
        if reason is not None:
            # The kernel is too old; the reason names its version.
            self.assertIn(platform.release(), reason)
            return
        before = sched_attr.get_slice_us(0)
        own = (threading.get_native_id(), 2**22 - 1)
        privileged.set_slice_us(own, 5_000)
        self.assertEqual(5_000, sched_attr.get_slice_us(0))
        privileged.set_slice_us(own, 0)
        self.assertEqual(before, sched_attr.get_slice_us(0))

    def test_kernel_error_is_raised_in_the_caller(self) -> None:
        error = self.assertRaises(
            OSError, privileged.set_slice_us, (-1,), 5_000
        )
        self.assertEqual(errno.EINVAL, error.errno)

    def test_other_functions_cannot_be_called(self) -> None:
        privileged.set_slice_us((), 0)
        self.assertRaises(
            NameError,
            privileged.CONTEXT.channel.remote_call,
            'os.getpid',
            (),
            {},
            10.0,
        )

    def test_daemon_that_cannot_start_raises_and_names_the_helper(
        self,
    ) -> None:
        cfg.CONF.set_override(
            'helper_command', 'false', group=privileged.SECTION
        )
        self.addCleanup(
            cfg.CONF.clear_override,
            'helper_command',
            group=privileged.SECTION,
        )
        error = self.assertRaises(OSError, privileged.set_slice_us, (1,), 0)
        self.assertIn(privileged.HELPER, str(error))


class TestGuest(base.AgentTestCase):
    def slices(self, domain: libvirt.virDomain) -> list[int]:
        """Return the slices of a guest's vCPU threads, in microseconds."""
        host = qemu_process.Processes()
        pid = host.find(domain.UUIDString())
        tids = host.vcpu_threads(pid, range(domain.maxVcpus()))
        self.assertNotEqual((), tids)
        return [sched_attr.get_slice_us(tid) for tid in tids]

    def test_slices_are_restored_after_a_stop_and_after_a_kill(self) -> None:
        domain = self.domain({'vhpc:workload': 'parallel'})
        before = self.slices(domain)
        reason = kernel_slice.KernelSliceActuator(None).check()
        privileged.CONTEXT.stop()
        for kill in (False, True):
            process = self.start_agent(actuators='libvirt,kernel_slice')
            if reason is None:
                self.wait_for(
                    lambda: self.slices(domain) == [10_000] * 2, 'the slices'
                )
            else:
                self.wait_for(
                    lambda: self.log_lines('kernel_slice is not used'), reason
                )
                self.wait_for_write(domain)
            if kill:
                process.kill()
                process.join(PATIENCE_S)
                self.assertEqual(0, self.restore())
            else:
                self.assertEqual(0, self.stop_agent(process))
            self.assertEqual(before, self.slices(domain))
