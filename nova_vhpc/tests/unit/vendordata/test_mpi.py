# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import ipaddress

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
