# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import psutil
from oslotest import base

from nova_vhpc.topology import links


class AddressTest(base.BaseTestCase):
    def test_subnet_is_that_of_the_netmask(self) -> None:
        for subnet, address, netmask in (
            ('10.1.0.0/24', '10.1.0.7', '255.255.255.0'),
            ('fd00:1::/64', 'fd00:1::7', 'ffff:ffff:ffff:ffff::'),
            (None, '10.1.0.7', '255.255.255.255'),
            (None, '10.1.0.7', None),
        ):
            self.assertEqual(subnet, links.subnet_of(address, netmask))

    def test_addresses_of_this_host_are_read(self) -> None:
        (loopback,) = (
            name
            for name, addresses in psutil.net_if_addrs().items()
            if any(each.address == '127.0.0.1' for each in addresses)
        )
        self.assertEqual(
            links.Address(loopback, '127.0.0.0/8'),
            links.read_addresses()['127.0.0.1'],
        )
