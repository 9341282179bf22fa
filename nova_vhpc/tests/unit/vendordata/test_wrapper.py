# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The script is run by a real shell with the interfaces of this machine."""

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
