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


"""Packets take the claimed uplink, on two hosts with real OVN.

Members are network namespaces. The frames of each uplink are counted in the
fabric between the hosts.
"""

from nova_vhpc.tests.functional.agent import encap_ip
from nova_vhpc.tests.ovn import lab

PINGS = 50

NOISE = 5
"""Most other frames on a used uplink, such as ARP between the hosts."""


class EncapIpPathsTest(encap_ip.EncapIpTestCase):
    HOSTS = {'h1': 3, 'h2': 3}

    def setUp(self) -> None:
        super().setUp()
        self.here, self.peer = (self.guest('h1', sends=True) for _ in range(2))
        self.far = self.guest('h2', sends=True)
        self.agents = {name: self.agent(name) for name in self.hosts}

    def claim(self, guest: encap_ip.Guest, rail: int) -> None:
        """Let a guest claim an uplink, and wait until all hosts know it."""
        name = guest.host.name
        self.agents[name].manage(guest, rail)
        self.wait_for_encap_ip(guest, self.hosts[name].encap_ips[rail])

    def frames(
        self, source: encap_ip.Guest, target: encap_ip.Guest
    ) -> dict[str, list[int]]:
        """Let two guests talk; return the frames in and out of each uplink."""
        # The first packets make the hosts learn each other's addresses, and
        # OVN tell all hosts of the encap IPs.
        self.lab.nbctl('--wait=hv', 'sync')
        source.ping(target, 5)

        def counted() -> dict[str, list[int]]:
            return {
                f'{name} {way}': host.frames(way)
                for name, host in self.hosts.items()
                for way in ('in', 'out')
            }

        before = counted()
        source.ping(target, PINGS)
        return {
            key: [
                after - earlier
                for after, earlier in zip(counts, before[key], strict=True)
            ]
            for key, counts in counted().items()
        }

    def assert_rail(self, rail: int, carried: list[int]) -> None:
        """Assert that one uplink carried all frames, and no other any."""
        others = carried[:rail] + carried[rail + 1 :]
        self.assertEqual([0] * len(others), others, carried)
        self.assertGreaterEqual(carried[rail], PINGS)
        self.assertLessEqual(carried[rail], PINGS + NOISE)

    def test_packets_take_the_claimed_uplinks(self) -> None:
        for carried in self.frames(self.here, self.far).values():
            self.assert_rail(0, carried)

        self.claim(self.here, 1)
        self.claim(self.far, 1)
        for carried in self.frames(self.here, self.far).values():
            self.assert_rail(1, carried)

        # Each receives on its own uplink.
        self.claim(self.far, 2)
        carried = self.frames(self.here, self.far)
        self.assert_rail(1, carried['h1 in'])
        self.assert_rail(2, carried['h2 in'])

        for agent in self.agents.values():
            agent.binder.stop()
        for guest in (self.here, self.far):
            self.wait_for_encap_ip(guest, guest.host.encap_ips[0])
        for carried in self.frames(self.here, self.far).values():
            self.assert_rail(0, carried)

    def test_packets_to_a_peer_stay_on_the_host(self) -> None:
        self.claim(self.here, 1)
        self.claim(self.peer, 2)
        for carried in self.frames(self.here, self.peer).values():
            self.assertEqual([0, 0, 0], carried)

    def test_packets_return_to_the_uplink_after_a_hard_reboot(self) -> None:
        self.claim(self.here, 1)
        self.claim(self.far, 1)
        self.far.unplug()
        self.far.plug()
        lab.wait_for(
            lambda: self.far.encap_ip == self.hosts['h2'].encap_ips[1],
            'the encap IP of the new port',
        )
        self.wait_for_encap_ip(self.far, self.hosts['h2'].encap_ips[1])
        for carried in self.frames(self.here, self.far).values():
            self.assert_rail(1, carried)
