# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

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
