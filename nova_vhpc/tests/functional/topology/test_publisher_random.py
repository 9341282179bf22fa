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

"""Random changes of bridges while servers hold claims: no slot is given twice.

Options change (kind, slots), NICs and bridges are renamed, links go down, and
publications end at any request.
"""

import collections
import dataclasses
import random
from typing import Any

from keystoneauth1 import exceptions

from nova_vhpc.placement import client as placement_client
from nova_vhpc.placement import publisher
from nova_vhpc.tests.functional.topology import test_publisher
from nova_vhpc.topology import model

SHARED, SEPARATE = model.BridgeKind


class CutAdapter:
    """Placement's adapter; the connection breaks at one of the requests.

    :param requests: number of requests before; None for a whole connection.
    """

    def __init__(self, adapter: Any, requests: int | None) -> None:
        self._adapter = adapter
        self._requests = requests

    def request(self, url: str, method: str, **more: Any) -> Any:
        """Pass a request on, unless the connection is broken."""
        if self._requests is not None:
            self._requests -= 1
            if self._requests < 0:
                raise exceptions.ConnectFailure('cut')
        return self._adapter.request(url, method, **more)


@dataclasses.dataclass(frozen=True)
class Claim:
    """A claim of a server.

    :ivar bridge: name of the bridge that the server is on.
    :ivar alone: whether the server has been given the uplink for itself.
    """

    bridge: str
    alone: bool


class RandomChangesTest(test_publisher.PlacementCase):
    rounds = 25

    def test_no_slot_is_offered_twice(self) -> None:
        for seed in range(3):
            with self.subTest(seed=seed):
                self.play(random.Random(seed))

    def play(self, chance: random.Random) -> None:
        """Change, publish and claim at random, and check what is offered."""
        claims: dict[str, Claim] = {}
        for number in range(1, self.rounds):
            uplinks = self.random_uplinks(chance)
            topology = test_publisher.topology(*uplinks)
            cut = chance.randint(0, 40) if chance.random() < 0.4 else None
            client = placement_client.PlacementClient(
                CutAdapter(self.adapter(), cut)
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
            for consumer in list(claims):
                if chance.random() < 0.25:
                    self.nova('DELETE', f'/allocations/{consumer}')
                    del claims[consumer]
        for consumer in claims:
            self.nova('DELETE', f'/allocations/{consumer}')
        publisher.Publisher(self.client, ['cn1']).publish(topology, 99)
        self.check(uplinks, {})
        self.assertEqual(
            sum(uplink.slots for uplink in uplinks if uplink.up),
            sum(free for _, free in self.offers().values()),
        )

    @staticmethod
    def random_uplinks(chance: random.Random) -> list[model.Uplink]:
        """Return uplinks of one or two bridges with one to three NICs."""
        nics = ['eth1', 'eth2', 'eth3', 'eth4']
        chance.shuffle(nics)
        uplinks = []
        for bridge in chance.sample(
            ['br-a', 'br-b'], chance.choice((1, 2, 2))
        ):
            kind = chance.choice((SHARED, SHARED, SEPARATE))
            slots = 1 if kind is SEPARATE else chance.choice((1, 2, 4))
            uplinks += [
                model.Uplink(
                    nics.pop(),
                    bridge,
                    kind,
                    1000,
                    up=chance.random() < 0.85,
                    slots=slots,
                )
                for _ in range(chance.choice((1, 2, 2)))
            ]
        return uplinks

    def claim_any(
        self, chance: random.Random, claims: dict[str, Claim]
    ) -> None:
        """Claim one of the slots that are offered, if there is any."""
        offers = self.offers()
        offered = sorted(uuid for uuid, (_, free) in offers.items() if free)
        if offered:
            uuid = chance.choice(offered)
            bridge, _ = offers[uuid]
            alone = model.TRAIT_SEPARATE in self.client.traits(uuid)[1]
            claims[self.claim(uuid)] = Claim(bridge, alone)

    def offers(self) -> dict[str, tuple[str, int]]:
        """Return bridge and number of offered slots of each uplink."""
        offers = {}
        for uuid, name in self.client.children(self.root_uuid).items():
            if name.count(':') == 3:
                slots = self.client.inventories(uuid)[1].get(model.UPLINK)
                free = 0
                if slots:
                    free = slots['total'] - slots['reserved']
                    free = max(0, free - self.client.claims(uuid))
                offers[uuid] = (name.split(':')[2], free)
        return offers

    def check(
        self, uplinks: list[model.Uplink], claims: dict[str, Claim]
    ) -> None:
        """Check that each bridge's offers and guests fit its uplinks."""
        guests = collections.Counter(c.bridge for c in claims.values())
        offers = collections.Counter[str]()
        for bridge, free in self.offers().values():
            offers[bridge] += free
        for bridge in guests | offers:
            here = [uplink for uplink in uplinks if uplink.bridge == bridge]
            slots = sum(uplink.slots for uplink in here)
            what = (bridge, here, guests[bridge], offers[bridge])
            self.assertLessEqual(
                offers[bridge], max(0, slots - guests[bridge]), what
            )
            if not any(uplink.up for uplink in here):
                self.assertEqual(0, offers[bridge], what)
            alone = [
                c for c in claims.values() if c.bridge == bridge and c.alone
            ]
            if alone and here and here[0].kind is SHARED:
                self.assertEqual(0, offers[bridge], what)
