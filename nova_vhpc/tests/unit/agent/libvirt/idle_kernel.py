# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The weights of idle control groups, as kernels show them."""

import pathlib

import fixtures

from nova_vhpc.agent.libvirt import cgroup_weight


class IdleKernel(fixtures.Fixture):
    """Has plain files show what a kernel shows of an idle group.

    :ivar weight: ``cpu.weight`` of an idle group: 0 until Linux 6.11, then 1.
    """

    def __init__(self, weight: int = 0) -> None:
        super().__init__()
        self.weight = weight
        self._read = cgroup_weight.read

    def _setUp(self) -> None:
        self.useFixture(
            fixtures.MockPatchObject(cgroup_weight, 'read', self.read)
        )

    def read(self, path: pathlib.Path) -> int:
        """Return the weight in force."""
        if not cgroup_weight.is_idle(path):
            return self._read(path)
        return 3 if path.name == 'cpu.shares' else self.weight
