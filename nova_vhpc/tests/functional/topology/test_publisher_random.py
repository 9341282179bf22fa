# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Random changes of bridges while servers hold claims: no slot is given twice.

Options change (kind, slots), NICs and bridges are renamed, links go down, and
publications end at any request.
"""

import random

from nova_vhpc.placement import client as placement_client
from nova_vhpc.placement import publisher
from nova_vhpc.tests.functional.topology import random_changes, test_publisher


class RandomChangesTest(random_changes.RandomChangesCase):
    rounds = 25

    def test_no_slot_is_offered_twice(self) -> None:
        for seed in range(3):
            with self.subTest(seed=seed):
                self.play(random.Random(seed))

    def play(self, chance: random.Random) -> None:
        """Change, publish and claim at random, and check what is offered."""
        claims: dict[str, random_changes.Claim] = {}
        for number in range(1, self.rounds):
            uplinks = self.random_uplinks(chance)
            topology = test_publisher.topology(*uplinks)
            cut = chance.randint(0, 40) if chance.random() < 0.4 else None
            client = placement_client.PlacementClient(
                random_changes.FaultyAdapter(self.adapter(), cut)
            )
            try:
                publisher.Publisher(client, ['cn1']).publish(topology, number)
            except placement_client.PlacementError:
                if cut is None:
                    raise
            else:
                self.check(uplinks, claims)
            for _ in range(chance.randint(0, 3)):
                self.claim_any(chance, claims)
            self.leave(chance, claims)
        for consumer in claims:
            self.nova('DELETE', f'/allocations/{consumer}')
        publisher.Publisher(self.client, ['cn1']).publish(topology, 99)
        self.check(uplinks, {})
        self.assertEqual(
            sum(uplink.slots for uplink in uplinks if uplink.up),
            sum(free for _, free in self.offers().values()),
        )
