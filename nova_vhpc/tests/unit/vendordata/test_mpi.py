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
            flags = mpi.openmpi_flags(cluster)
            self.assertEqual(runtime, _flag(flags, 'oob_tcp_if_include'))
            for found in (flags, mpi.openmpi5_flags(cluster)):
                self.assertEqual(subnets, _flag(found, 'btl_tcp_if_include'))

    def test_launcher_of_open_mpi_5_gets_no_subnets(self):
        """It crashes, or does not start, with them."""
        for network in ('shared-separate', 'multiple-shared'):
            flags = mpi.openmpi5_flags(fakes.cluster(self.members, network))
            self.assertFalse([f for f in flags if 'prte' in f or 'oob' in f])

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

    def test_subnets_are_given_only_if_they_tell_nics_apart(self):
        """Lists of addresses connect no ranks; the wrapper has names."""
        bound = ['--use-hwthread-cpus', '--bind-to', 'hwthread']
        for addresses, subnets in (
            (
                ('10.0.0.1 10.0.0.4', '10.0.0.2 10.0.0.5'),
                ['10.0.0.4/31'],
            ),
            # The smallest subnet of the second has a NIC of the first.
            (('10.0.0.7 10.0.0.4', '10.0.0.2 10.0.0.5 '), ['10.0.0.4/31']),
            (('10.0.0.5 10.0.0.4', '10.0.0.2 10.0.0.6 '), []),
            (('fd00::1', 'fd00::2'), []),
            (('10.1.0.1', 'fd00::2'), []),
            # One that is still to boot.
            (('10.0.0.1 10.1.0.1', '10.0.0.2 10.1.0.2', ''), ['10.1.0.0/30']),
        ):
            cluster = fakes.cluster(
                [
                    _with_addresses(member, *text.split())
                    for member, text in zip(
                        self.members, addresses, strict=False
                    )
                ],
                'separate',
            )
            for flags in (
                mpi.openmpi_flags(cluster),
                mpi.openmpi5_flags(cluster),
            ):
                if subnets:
                    found = _flag(flags, 'btl_tcp_if_include')
                    self.assertEqual(subnets, found.split(','), addresses)
                else:
                    self.assertEqual(bound, flags, addresses)

    def test_members_of_two_configurations_have_common_subnets_or_none(self):
        one, two = self.members[:2]
        cluster = fakes.mixed(
            [
                dataclasses.replace(one, network='multiple-shared'),
                dataclasses.replace(two, network='separate'),
            ]
        )
        self.assertNotIn('btl_tcp_if_include', mpi.openmpi_flags(cluster))


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

    def test_open_mpi_does_not_look_up_routes_unless_told(self):
        """Those of shared-separate lead over the other bridge."""
        member = _member(1, 'shared-separate', '10.0.0.1', '10.1.0.1')
        name = 'OMPI_MCA_reachable'
        self.assertEqual('weighted', self.run_([member], names=[name])[1])
        self.assertEqual(
            'netlink',
            self.run_([member], names=[name], environment={name: 'netlink'})[
                1
            ],
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


# "ip rule del" fails once there is no such rule.
_ROUTES_IP = """\
#!/bin/sh
echo "$@" >>"$(dirname "$0")/calls"
case "$*" in *del* | *"$BROKEN"*) exit 2 ;; esac
"""
_ID = """\
#!/bin/sh
echo "$USER_ID"
"""


def _route(via, table, src='10.1.0.1'):
    version = 6 if ':' in via else 4
    return (
        f'-{version} route replace default via {via} src {src} table {table}'
    )


class RoutesTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.members = [
            fakes.member(1, 'h1'),
            fakes.member(2, 'h1'),
            fakes.member(3, 'h2'),
        ]
        self.path = pathlib.Path(self.useFixture(fixtures.TempDir()).path)

    def run_(self, network='shared-separate', *arguments):
        """Run the first member's script; return its calls of ``ip``."""
        ended = self.start(*arguments, network=network)
        self.assertEqual((0, ''), (ended.returncode, ended.stderr))
        return self.calls()

    def start(
        self, *arguments, network='shared-separate', user=0, broken='none'
    ):
        """Run the first member's script.

        :param broken: part of the calls of ``ip`` that fail.
        """
        cluster = fakes.cluster(self.members, network)
        text = mpi.routes_script(mpi.routes(cluster, cluster.members[0]))
        for name, content in (('ip', _ROUTES_IP), ('id', _ID)):
            (self.path / name).write_text(content)
            (self.path / name).chmod(0o755)
        (self.path / 'calls').write_text('')
        (self.path / 'vhpc-routes').write_text(text)
        return subprocess.run(
            ['sh', '-eu', self.path / 'vhpc-routes', *arguments],
            env={
                'PATH': f'{self.path}:{os.environ["PATH"]}',
                'BROKEN': broken,
                'USER_ID': str(user),
            },
            stderr=subprocess.PIPE,
            text=True,
        )

    def calls(self):
        return (self.path / 'calls').read_text().splitlines()

    def test_rules_lead_to_the_peers_on_the_same_host(self):
        # HPCVirt'09 section 4, figure 3.
        self.assertEqual(
            [
                '-4 rule del pref 20090',
                '-6 rule del pref 20090',
                _route('10.0.0.2', 20090),
                '-4 rule add pref 20090 to 10.1.0.2/32 lookup 20090',
            ],
            self.run_(),
        )

    def test_each_peer_has_a_table_of_its_own(self):
        self.members[2] = dataclasses.replace(self.members[2], host='h1')
        self.assertEqual(
            [
                _route('10.0.0.3', 20091),
                '-4 rule add pref 20090 to 10.1.0.3/32 lookup 20091',
            ],
            self.run_()[-2:],
        )

    def test_route_that_fails_has_no_rule_and_is_told_by_the_status(self):
        self.members[2] = dataclasses.replace(self.members[2], host='h1')
        ended = self.start(broken='via 10.0.0.2 ')
        self.assertEqual(1, ended.returncode)
        self.assertEqual(
            [
                _route('10.0.0.2', 20090),
                _route('10.0.0.3', 20091),
                '-4 rule add pref 20090 to 10.1.0.3/32 lookup 20091',
            ],
            self.calls()[2:],
        )

    def test_user_without_the_right_is_told_at_once(self):
        for argument in ((), ('stop',)):
            ended = self.start(*argument, user=1000)
            self.assertEqual(1, ended.returncode)
            self.assertIn('only root', ended.stderr)
            self.assertEqual([], self.calls())

    def test_stop_removes_the_rules_only(self):
        calls = self.run_('shared-separate', 'stop')
        self.assertEqual(
            ['-4 rule del pref 20090', '-6 rule del pref 20090'], calls
        )

    def test_rules_of_peers_that_left_are_removed(self):
        removed = ['-4 rule del pref 20090', '-6 rule del pref 20090']
        self.assertEqual(removed, self.run_('separate'))
        # As on OVN, where encap IPs separate the uplinks below one NIC.
        self.members = [
            fakes.member(number, 'h1', nics=1) for number in (1, 2)
        ]
        self.assertEqual(removed, self.run_())

    def dual(self, member, number, families):
        """The member with addresses of some families on each NIC."""
        return dataclasses.replace(
            member,
            nics=tuple(
                model.Nic(
                    nic.mac,
                    tuple(
                        ipaddress.ip_address(address)
                        for address in (
                            f'10.{index}.0.{number}',
                            f'fd00:{index + 1}::{number}',
                        )
                        if ipaddress.ip_address(address).version in families
                    ),
                )
                for index, nic in enumerate(member.nics)
            ),
        )

    def test_each_family_of_both_members_has_a_route(self):
        four = [
            _route('10.0.0.2', 20090),
            '-4 rule add pref 20090 to 10.1.0.2/32 lookup 20090',
        ]
        six = [
            _route('fd00:1::2', 20090, 'fd00:2::1'),
            '-6 rule add pref 20090 to fd00:2::2/128 lookup 20090',
        ]
        six_after_four = [
            line.replace('table 20090', 'table 20091').replace(
                'lookup 20090', 'lookup 20091'
            )
            for line in six
        ]
        one, two, _ = self.members
        for mine, peers, calls in (
            ((4,), (4,), four),
            ((6,), (6,), six),
            ((4, 6), (4, 6), four + six_after_four),
            ((4, 6), (4,), four),
            ((6,), (4, 6), six),
            ((4,), (6,), []),
        ):
            self.members = [self.dual(one, 1, mine), self.dual(two, 2, peers)]
            self.assertEqual(calls, self.run_()[2:], (mine, peers))
