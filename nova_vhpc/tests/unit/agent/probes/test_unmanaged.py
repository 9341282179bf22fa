# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of :mod:`nova_vhpc.agent.probes.unmanaged`."""

import gc
import pathlib
import tempfile

from nova_vhpc.agent.probes import unmanaged
from nova_vhpc.linux import qemu_process
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.agent import fake_libvirt

UUID = '6f0c1c52-0000-4000-8000-000000000001'


class Domain:
    """A domain that returns its shares and pins, or raises without them."""

    def __init__(self, shares=1024, quota=-1, pins=((0, 1, 2, 3),) * 2):
        self.shares = shares
        self.quota = quota
        self.pins = pins

    def ID(self):
        return 3

    def vcpuPinInfo(self, flags):
        if self.pins is None:
            raise fake_libvirt.refused('gone')
        return [tuple(cpu in pin for cpu in range(8)) for pin in self.pins]

    def schedulerParametersFlags(self, flags):
        if self.shares is None:
            raise fake_libvirt.refused('gone')
        return {
            'cpu_shares': self.shares,
            'vcpu_period': 100_000,
            'vcpu_quota': self.quota,
        }


class TestUnmanagedVms(base.TestCase):
    """Reads a fake /proc with one QEMU process of two vCPUs."""

    def setUp(self):
        super().setUp()
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.proc = pathlib.Path(scratch.name)
        process = self.proc / '77'
        process.mkdir()
        (process / 'cmdline').write_bytes(
            b'/usr/bin/qemu-system-x86_64\0-uuid\0' + UUID.encode() + b'\0'
        )
        (process / 'cgroup').write_text('0::/machine/qemu-3-x/emulator\n')
        for vcpu in range(2):
            task = process / 'task' / str(100 + vcpu)
            task.mkdir(parents=True)
            (task / 'comm').write_text(f'CPU {vcpu}/KVM\n')
        self.set_schedstat(0, 0)
        self.unmanaged_vms = unmanaged.UnmanagedVms(
            qemu_process.Processes(str(self.proc), str(self.proc / 'cgroup')),
            lambda: frozenset({0, 1, 2, 3}),
        )

    def set_schedstat(self, run_ms, wait_ms):
        for vcpu in range(2):
            path = self.proc / '77/task' / str(100 + vcpu) / 'schedstat'
            path.write_text(f'{run_ms * 10**6} {wait_ms * 10**6} 5\n')

    def view(self, now_us):
        (view,) = self.unmanaged_vms.views(now_us)
        return view

    def test_sample_has_run_and_wait_since_the_last_tick(self):
        self.unmanaged_vms.follow(UUID, Domain(), range(2))
        self.view(1_000_000)
        self.set_schedstat(40, 60)
        view = self.view(1_100_000)
        self.assertEqual((UUID, 2, 1024), (view.uuid, view.vcpus, view.shares))
        self.assertEqual((40_000.0, 40_000.0), view.sample.vcpu_run_us)
        self.assertEqual((60_000.0, 60_000.0), view.sample.vcpu_wait_us)
        self.assertEqual(100_000, view.sample.elapsed_us)

    def test_sample_has_the_quota(self):
        # cgroup v1, v2, and a flavor's.
        for quota, share in ((-1, None), (2**64 // 1000, None), (5_000, 0.05)):
            self.unmanaged_vms.follow(UUID, Domain(quota=quota), range(2))
            self.assertEqual(share, self.view(1).share)

    def test_first_tick_has_no_sample(self):
        self.unmanaged_vms.follow(UUID, Domain(), range(2))
        self.assertIsNone(self.view(1_000_000).sample.vcpu_run_us)

    def test_shares_are_unknown_if_libvirt_returns_none(self):
        self.unmanaged_vms.follow(UUID, Domain(None), range(2))
        self.assertIsNone(self.view(1).shares)

    def test_vm_with_dedicated_cpus_is_not_read(self):
        self.unmanaged_vms.follow(UUID, Domain(pins=((4,), (5,))), range(2))
        self.assertEqual((), self.unmanaged_vms.views(1))
        # An operator pins the VM elsewhere.
        self.unmanaged_vms.follow(UUID, Domain(pins=((3, 4), (5,))), range(2))
        self.assertEqual(1, self.view(1).vcpus)
        self.unmanaged_vms.follow(UUID, Domain(pins=((4,), (5,))), range(2))
        self.assertEqual((), self.unmanaged_vms.views(1))

    def test_only_shared_vcpus_of_a_mixed_vm_are_read(self):
        self.unmanaged_vms.follow(UUID, Domain(pins=((4,), (0, 1))), range(2))
        self.view(1_000_000)
        path = self.proc / '77/task/101/schedstat'
        path.write_text(f'{30 * 10**6} {20 * 10**6} 5\n')
        view = self.view(1_100_000)
        self.assertEqual(1, view.vcpus)
        self.assertEqual((30_000.0,), view.sample.vcpu_run_us)
        self.assertEqual((20_000.0,), view.sample.vcpu_wait_us)

    def test_sample_has_the_allowed_cpus(self):
        for pins, shown in (
            (((0, 1), (2, 5)), ({0, 1}, {2, 5})),
            (((4,), (0, 1)), ({0, 1},)),
            # libvirt returns nothing about the second vCPU.
            (((0, 1),), None),
        ):
            self.unmanaged_vms.follow(UUID, Domain(pins=pins), range(2))
            self.assertEqual(shown, self.view(1).vcpu_pins)

    def test_pins_are_unknown_if_libvirt_returns_none(self):
        self.unmanaged_vms.follow(UUID, Domain(pins=None), range(2))
        view = self.view(1)
        self.assertEqual((2, None), (view.vcpus, view.vcpu_pins))

    def test_pins_of_unplugged_vcpus_do_not_count(self):
        self.unmanaged_vms.follow(UUID, Domain(pins=((0,),) * 9), range(2))
        self.assertEqual(2, self.view(1).vcpus)

    def test_vm_without_process_has_no_sample(self):
        other = UUID.replace('1', '2')
        self.unmanaged_vms.follow(other, Domain(), range(2))
        self.assertIsNone(self.view(1).sample.elapsed_us)

    def test_vm_that_ends_between_ticks_has_no_sample(self):
        self.unmanaged_vms.follow(UUID, Domain(), range(2))
        self.view(1_000_000)
        for vcpu in range(2):
            path = self.proc / '77/task' / str(100 + vcpu) / 'schedstat'
            path.write_text('')
        self.assertIsNone(self.view(1_100_000).sample.vcpu_run_us)

    def test_forgotten_vm_is_not_listed(self):
        self.unmanaged_vms.follow(UUID, Domain(), range(2))
        self.unmanaged_vms.forget(UUID)
        self.unmanaged_vms.forget(UUID)
        self.assertEqual((), self.unmanaged_vms.views(1))

    def test_files_are_closed(self):
        fds = pathlib.Path('/proc/self/fd')
        # Files that other tests have left are closed meanwhile.
        gc.collect()
        before = len(list(fds.iterdir()))
        for _ in range(50):
            self.unmanaged_vms.follow(UUID, Domain(), range(2))
            self.unmanaged_vms.views(1)
        self.unmanaged_vms.forget(UUID)
        self.unmanaged_vms.views(1)
        self.assertLessEqual(len(list(fds.iterdir())), before)
