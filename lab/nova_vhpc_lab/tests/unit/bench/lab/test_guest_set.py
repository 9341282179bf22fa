# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of what the lab needs before it starts guests."""

import os
from pathlib import Path
from unittest import mock

import fixtures

from nova_vhpc.tests import base
from nova_vhpc_lab.bench.lab import guest_set, mixes
from nova_vhpc_lab.testbed import errors, libvirtd


class CheckTest(base.TestCase):
    def test_missing_libvirtd_virsh_or_qemu_is_reported(self):
        path = Path(self.useFixture(fixtures.TempDir()).path)
        for name in ('libvirtd', 'virsh', 'qemu-system-x86_64'):
            with (
                mock.patch.object(os, 'geteuid', return_value=0),
                mock.patch.dict(os.environ, {'PATH': str(path)}),
            ):
                error = self.assertRaises(
                    libvirtd.LibvirtdError, guest_set.check
                )
            self.assertIn(f'no {name} on this machine', str(error))
            self.assertIn('bindep.txt', str(error))
            (path / name).symlink_to('/bin/true')

    def test_missing_ip_program_is_reported_for_mixes_with_a_network(self):
        with (
            mock.patch.object(os, 'geteuid', return_value=0),
            mock.patch.object(libvirtd, 'check'),
            mock.patch.object(guest_set.shutil, 'which', return_value=None),
            mock.patch.object(guest_set.cpu_controller.CpuController, 'find'),
        ):
            guest_set.check([mixes.MIXES['hogs']])
            error = self.assertRaises(
                errors.LabError, guest_set.check, [mixes.MIXES['web']]
            )
        self.assertIn('iproute2', str(error))
