# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import ipaddress
import os
import pathlib
import shutil
import subprocess
import unittest

import fixtures

from nova_vhpc.tests import base
from nova_vhpc.tests.unit.vendordata import fakes
from nova_vhpc.vendordata import model, mpi


def _flag(flags, name):
    return flags[flags.index(name) + 1]


def _with_addresses(member, *addresses):
    return dataclasses.replace(
        member,
        nics=tuple(
            model.Nic('m', (ipaddress.ip_address(address),))
            for address in addresses
        ),
    )


class OpenMpiTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.members = [fakes.member(n, 'h1') for n in (1, 2, 3)]

    def test_flags_select_the_subnets_of_the_configuration(self):
        # HPCVirt'09 section 5: it uses all interfaces that it finds.
        for network, subnets, runtime in (
            ('shared-separate', '10.1.0.0/30', '10.1.0.0/30'),
            ('multiple-shared', '10.0.0.0/30,10.1.0.0/30', '10.0.0.0/30'),
        ):
            cluster = fakes.cluster(self.members, network)
            for flags, name in (
                (mpi.openmpi_flags(cluster), 'oob_tcp_if_include'),
                (mpi.openmpi5_flags(cluster), 'prte_if_include'),
            ):
                self.assertEqual(subnets, _flag(flags, 'btl_tcp_if_include'))
                self.assertEqual(runtime, _flag(flags, name))

    def test_long_messages_are_spread_over_two_interfaces_only(self):
        for network, limit in (
            ('multiple-shared', '16384'),
            ('shared-separate', None),
        ):
            cluster = fakes.cluster(self.members, network)
            for flags in (
                mpi.openmpi_flags(cluster),
                mpi.openmpi5_flags(cluster),
            ):
                if limit is None:
                    self.assertNotIn('btl_tcp_eager_limit', flags)
                else:
                    self.assertEqual(
                        limit, _flag(flags, 'btl_tcp_eager_limit')
                    )

    def test_each_runtime_gets_its_own_parameter_only(self):
        cluster = fakes.cluster(self.members)
        self.assertNotIn('--prtemca', mpi.openmpi_flags(cluster))
        self.assertNotIn('oob_tcp_if_include', mpi.openmpi5_flags(cluster))

    def test_networks_with_one_address_range_are_told_apart(self):
        members = [
            _with_addresses(
                member, f'10.0.0.{number + 1}', f'10.0.0.{number + 4}'
            )
            for number, member in enumerate(self.members)
        ]
        cluster = fakes.cluster(members, 'separate')
        self.assertEqual(
            '10.0.0.4/30',
            _flag(mpi.openmpi_flags(cluster), 'btl_tcp_if_include'),
        )
        # Now the smallest subnet of the second has a NIC of the first.
        members[0] = _with_addresses(members[0], '10.0.0.7', '10.0.0.4')
        cluster = fakes.cluster(members, 'separate')
        self.assertEqual(
            '10.0.0.4/32,10.0.0.5/32,10.0.0.6/32',
            _flag(mpi.openmpi_flags(cluster), 'btl_tcp_if_include'),
        )

    def test_no_subnets_are_given_for_ipv6(self):
        members = [_with_addresses(m, 'fd00::2') for m in self.members[:1]]
        cluster = fakes.cluster(members)
        for flags in (mpi.openmpi_flags(cluster), mpi.openmpi5_flags(cluster)):
            self.assertEqual(
                ['--use-hwthread-cpus', '--bind-to', 'hwthread'], flags
            )


class BindingTest(base.TestCase):
    def test_no_rank_is_bound_to_fewer_cores_than_it_has_threads(self):
        members = [fakes.member(n, 'h1') for n in (1, 2)]
        for paradigm, openmpi, mpich in (
            ('mpi', 'hwthread', 'core'),
            ('openmp', 'none', 'none'),
            ('hybrid', 'none', 'none'),
        ):
            cluster = fakes.cluster(members, paradigm=paradigm)
            for flags in (
                mpi.openmpi_flags(cluster),
                mpi.openmpi5_flags(cluster),
            ):
                self.assertEqual(openmpi, _flag(flags, '--bind-to'))
                # Only with it is each of a core's threads a slot.
                self.assertEqual(
                    openmpi == 'hwthread', '--use-hwthread-cpus' in flags
                )
            flags = mpi.mpich_flags(cluster)
            self.assertEqual(mpich, _flag(flags, '-bind-to'))

    def test_one_member_with_threads_turns_binding_off_for_all(self):
        # mpirun binds all its ranks alike, wherever it is started.
        members = [fakes.member(n, 'h1') for n in (1, 2)]
        members[1] = dataclasses.replace(members[1], paradigm='hybrid')
        cluster = fakes.mixed(members)
        self.assertEqual([2, 1], [mpi.slots(m) for m in cluster.members])
        self.assertEqual(['-bind-to', 'none'], mpi.mpich_flags(cluster))


# What iproute2 prints in a guest with three NICs, two on one address range.
_IP = """\
#!/bin/sh
cat <<'END'
1: lo    inet 127.0.0.1/8 scope host lo
2: ens3    inet 10.0.0.1/24 brd 10.0.0.255 scope global ens3
3: ens4    inet 10.1.0.1/24 brd 10.1.0.255 scope global ens4
3: ens4    inet6 fd00::1/64 scope global
4: ens5    inet 10.1.0.11/24 brd 10.1.0.255 scope global ens5
END
"""

_NAMES = (
    'OMPI_MCA_btl_tcp_if_include',
    'UCX_NET_DEVICES',
    'FI_TCP_IFACE',
    'FI_PROVIDER',
)


def _member(number, network, *addresses):
    return dataclasses.replace(
        fakes.member(number, 'h1'),
        network=network,
        nics=tuple(
            model.Nic('', (ipaddress.ip_address(address),))
            for address in addresses
        ),
    )


class WrapperTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.useFixture(fixtures.TempDir()).path)

    def run_(self, members, *, ip=_IP, environment=(), names=_NAMES):
        """Run a program that prints its argument and the variables."""
        if ip is not None:
            (self.path / 'ip').write_text(ip)
            (self.path / 'ip').chmod(0o755)
        script = self.path / 'vhpc-run'
        script.write_text(mpi.wrapper(fakes.mixed(members)))
        program = '; '.join(['echo "$1"', *(f'echo "${n}"' for n in names)])
        return subprocess.run(
            ['sh', '-eu', script, 'sh', '-c', program, '', 'two words'],
            env={
                'PATH': f'{self.path}:{os.environ["PATH"]}:/usr/sbin:/sbin',
                **dict(environment),
            },
            capture_output=True,
            check=True,
            text=True,
        ).stdout.splitlines()

    def test_libraries_get_the_interfaces_of_the_configuration(self):
        for network, nics, expected in (
            ('separate', ('10.0.0.1', '10.1.0.1'), 'ens4'),
            ('shared', ('10.0.0.1',), 'ens3'),
            ('multiple-shared', ('10.0.0.1', '10.1.0.1'), 'ens3,ens4'),
            ('shared-separate', ('10.0.0.1', '10.1.0.1'), 'ens4'),
        ):
            members = [
                _member(1, network, *nics),
                _member(2, network, *(f'{nic}2' for nic in nics)),
            ]
            first = expected.split(',')[0]
            self.assertEqual(
                ['two words', expected, expected, first, 'tcp'],
                self.run_(members),
            )

    def test_long_messages_are_spread_over_two_interfaces(self):
        limits = {
            'OMPI_MCA_btl_tcp_eager_limit': '16384',
            'OMPI_MCA_btl_tcp_rndv_eager_limit': '4096',
            'UCX_MAX_EAGER_RAILS': '2',
            'UCX_MAX_RNDV_RAILS': '2',
            'UCX_RNDV_THRESH': '16384',
        }
        nics = ('10.0.0.1', '10.1.0.1')
        found = self.run_([_member(1, 'multiple-shared', *nics)], names=limits)
        self.assertEqual([*limits.values()], found[1:])
        chosen = {**limits, 'UCX_RNDV_THRESH': 'auto'}
        found = self.run_(
            [_member(1, 'multiple-shared', *nics)],
            names=limits,
            environment={'UCX_RNDV_THRESH': 'auto'},
        )
        self.assertEqual([*chosen.values()], found[1:])
        for network, addresses in (
            ('shared', nics[:1]),
            ('shared-separate', nics),
            # The other network is not this guest's.
            ('multiple-shared', ('10.0.0.1', '10.9.0.1')),
        ):
            found = self.run_([_member(1, network, *addresses)], names=limits)
            self.assertEqual([''] * len(limits), found[1:], network)

    def test_another_nic_in_the_same_address_range_is_not_used(self):
        # The smallest subnet of .1 and .14 has .11, too.
        members = [
            _member(1, 'separate', '10.1.0.11', '10.1.0.1'),
            _member(2, 'separate', '10.1.0.12', '10.1.0.14'),
        ]
        self.assertEqual('ens4', self.run_(members)[1])

    def test_interfaces_are_found_by_ipv6_and_named_once(self):
        members = [_member(1, 'multiple-shared', 'fd00::1', '10.1.0.1')]
        self.assertEqual('ens4', self.run_(members)[1])

    def test_a_provider_that_the_user_chose_is_kept(self):
        members = [_member(1, 'shared', '10.0.0.1')]
        found = self.run_(members, environment={'FI_PROVIDER': 'sockets'})
        self.assertEqual('sockets', found[-1])

    @unittest.skipUnless(shutil.which('ip'), 'needs iproute2')
    def test_interfaces_of_this_machine_are_found(self):
        members = [_member(1, 'shared', '127.0.0.1')]
        self.assertEqual(
            ['two words', 'lo', 'lo', 'lo', 'tcp'],
            self.run_(members, ip=None),
        )

    def test_program_runs_where_no_interface_is_found(self):
        for addresses in ((), ('203.0.113.7', '2001:db8::7')):
            self.assertEqual(
                ['two words', '', '', '', ''],
                self.run_([_member(1, 'multiple-shared', *addresses)]),
            )
