# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Two hosts with real OVN, whose guests talk, and the frames of each uplink.

Guests are network namespaces. Frames are counted in the fabric between the
hosts.
"""

from nova_vhpc.tests.functional.agent import encap_ip

PINGS = 50

NOISE = 5
"""Most other frames on a used uplink, such as ARP between the hosts."""


class FramesTestCase(encap_ip.EncapIpTestCase):
    """Has two guests on one host and one on another, and their agents."""

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
        # The sync does not wait for a port that has just moved.
        self.wait_for_answer(source, target)
        source.ping(target, 5)

        def counted() -> dict[str, list[int]]:
            return {
                f'{name} {way}': host.frames(way)
                for name, host in self.hosts.items()
                for way in ('in', 'out')
            }

        before = counted()
        self.answers = PINGS - source.ping(target, PINGS)
        # On a busy machine, Open vSwitch in user space loses some.
        self.assertGreater(self.answers, PINGS // 2)
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
        self.assertGreaterEqual(carried[rail], self.answers)
        self.assertLessEqual(carried[rail], PINGS + NOISE)

    def choose_hosts(self, guest: encap_ip.Guest, hosts: str) -> None:
        """Bind a guest's port to hosts, as Neutron does."""
        self.lab.nbctl(
            'lsp-set-options', guest.port, f'requested-chassis={hosts}'
        )
