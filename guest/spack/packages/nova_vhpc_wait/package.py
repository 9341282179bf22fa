# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

# ruff: noqa: F403, F405
# flake8: noqa
"""Build the waiting library: ``spack repo add guest/spack`` in a clone."""

import pathlib

from spack.package import *


class NovaVhpcWait(MakefilePackage):
    """Let MPI programs nap while they wait."""

    homepage = 'https://opendev.org/openstack/nova-vhpc'
    has_code = False
    license('Apache-2.0')
    version('1.0')
    depends_on('c', type='build')
    depends_on('mpi')
    depends_on('gmake', type='build')

    @property
    def _arguments(self):
        guest = pathlib.Path(__file__).resolve().parents[3]
        return (
            *('-C', str(guest), f'BUILD={self.stage.path}'),
            *(f'MPICC={self.spec["mpi"].mpicc}', f'PREFIX={self.prefix}'),
        )

    def build(self, spec, prefix):
        make(*self._arguments)

    def install(self, spec, prefix):
        make(*self._arguments, 'install')

    def setup_run_environment(self, env):
        env.set('LD_PRELOAD', self.prefix.lib.join('libvhpcwait.so'))
