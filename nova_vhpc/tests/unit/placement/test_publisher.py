# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Publishing to a stub; functional tests use the real Placement."""

import collections
from typing import Any

from nova_vhpc.placement import publisher
from nova_vhpc.tests import base
from nova_vhpc.topology import model


class Placement:
    """A stub of Placement with the providers of one host."""

    def __init__(self) -> None:
        self.writes = 0
        self.names: dict[str, str] = {}
        self.claimed = collections.Counter[str]()
        self.kept: dict[str, Any] = collections.defaultdict(dict)

    def find_root(self, **by: str) -> tuple[str, str]:
        return 'root', 'cn1'

    def children(self, root: str) -> dict[str, str]:
        return dict(self.names)

    def tree_of_root(self, root: str) -> dict[str, str]:
        return {}

    def create(self, uuid: str, name: str, parent: str) -> None:
        self.names[uuid] = name

    def in_use(self, uuid: str) -> bool:
        return bool(self.claims(uuid))

    def claims(self, uuid: str) -> int:
        return self.claimed[uuid]

    def inventories(self, uuid: str) -> tuple[int, dict[str, Any]]:
        return 0, self.kept[uuid]

    def put_inventories(self, uuid: str, generation: int, new: Any) -> int:
        self.kept[uuid] = dict(new)
        return generation

    def traits(self, uuid: str) -> tuple[int, frozenset[str]]:
        return 0, frozenset()

    def put_traits(self, uuid: str, generation: int, new: Any) -> int:
        return generation

    def separate(self, root: str) -> frozenset[str]:
        return frozenset()


def uplink(nic: str) -> model.Uplink:
    return model.Uplink(nic, 'br-a', model.BridgeKind.SHARED, 1000, slots=4)


class RenamedTest(base.TestCase):
    """One of the two uplinks of a shared bridge gets another name."""

    def setUp(self) -> None:
        super().setUp()
        self.placement = Placement()
        client: Any = self.placement
        self.publisher = publisher.Publisher(client, ('cn1',))

    def uuid(self, nic: str) -> str:
        return model.provider_uuid('cn1', 'br-a', nic)

    def publish(self, *nics: str) -> None:
        bridge = model.Bridge(
            'br-a',
            model.BridgeKind.SHARED,
            tuple(uplink(nic) for nic in nics),
        )
        self.publisher.publish(model.HostTopology('cn1', (bridge,)), 77)

    def free(self, nic: str) -> int:
        """Return the slots that Placement would still allocate."""
        slots = self.placement.kept[self.uuid(nic)][model.UPLINK]
        claimed = self.placement.claimed[self.uuid(nic)]
        left: int = slots['total'] - slots['reserved'] - claimed
        return max(0, left)

    def test_full_uplink_takes_no_guests_of_the_renamed_one(self) -> None:
        self.publish('eth1', 'eth2')
        self.placement.claimed[self.uuid('eth1')] = 4
        self.placement.claimed[self.uuid('eth2')] = 3
        for _ in range(2):
            self.publish('eth1', 'p2p1')
            self.assertEqual(0, self.free('eth1'))
            self.assertEqual(1, self.free('p2p1'))

    def test_slots_become_free_as_guests_leave(self) -> None:
        self.publish('eth1', 'eth2')
        self.placement.claimed[self.uuid('eth1')] = 4
        self.placement.claimed[self.uuid('eth2')] = 4
        for guests in (3, 2, 1, 0):
            self.publish('eth1', 'p2p1')
            self.placement.claimed[self.uuid('eth2')] = guests
            self.publish('eth1', 'p2p1')
            self.assertEqual(4 - guests, self.free('eth1') + self.free('p2p1'))

    def test_no_slot_is_free_with_more_guests_than_slots(self) -> None:
        """No slot is free until as many guests have left as were too many."""
        self.publish('eth1', 'eth2')
        self.placement.claimed[self.uuid('eth1')] = 4
        self.placement.claimed[self.uuid('eth2')] = 4
        self.publish('eth1')
        self.assertEqual(0, self.free('eth1'))
        self.placement.claimed[self.uuid('eth1')] = 2
        self.assertEqual(0, self.free('eth1'))
