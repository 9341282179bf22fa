# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""How MPI libraries start the program."""

import pathlib

import fixtures

from nova_vhpc.tests import base
from nova_vhpc_lab.bench.network import libraries


def installed(name):
    return libraries.Installed(
        libraries.LIBRARIES[name],
        pathlib.Path('/cache/library'),
        pathlib.Path('/cache/library/exchange'),
    )


def command(name):
    return installed(name).command(
        launcher=pathlib.Path('/run/launcher'),
        hostfile=pathlib.Path('/run/hostfile'),
        flags=['--flag'],
        members=8,
        program=['./program', '4'],
    )


class CommandTest(base.TestCase):
    def test_program_comes_last_after_the_flags_of_vendordata(self):
        for name in libraries.LIBRARIES:
            words = command(name)
            self.assertEqual(('--flag', './program', '4'), words[-3:])
            self.assertEqual('8', words[words.index('-n') + 1])

    def test_each_library_starts_ranks_by_the_launcher(self):
        words = command('mpich-ofi')
        place = words.index('-launcher-exec')
        self.assertEqual('/run/launcher', words[place + 1])
        words = command('openmpi')
        place = words.index('plm_ssh_agent')
        self.assertEqual('--prtemca', words[place - 1])
        self.assertEqual('/run/launcher', words[place + 1])


class EnvironmentTest(base.TestCase):
    def test_only_sockets_connect_guests(self):
        self.assertEqual(
            'tcp', installed('mpich-ofi').environment()['FI_PROVIDER']
        )
        self.assertEqual(
            'tcp,self', installed('mpich-ucx').environment()['UCX_TLS']
        )
        self.assertEqual(
            'tcp,self', installed('openmpi').environment()['OMPI_MCA_btl']
        )

    def test_ranks_of_a_native_host_share_memory(self):
        for name in libraries.LIBRARIES:
            variables = installed(name).environment(is_native=True)
            self.assertNotIn('MPIR_CVAR_NOLOCAL', variables)
        self.assertIn('sm', variables['OMPI_MCA_btl'].split(','))

    def test_openmpi_finds_its_files_in_the_cache(self):
        self.assertEqual(
            '/cache/library', installed('openmpi').environment()['OPAL_PREFIX']
        )

    def test_variables_of_the_caller_have_no_effect(self):
        self.useFixture(fixtures.EnvironmentVariable('UCX_TLS', 'shm'))
        self.assertNotIn('UCX_TLS', installed('openmpi').environment())
