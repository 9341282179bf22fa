# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Random uplinks and claims at a real Placement, and what may be offered.

Options change (kind, slots), NICs are renamed and links go down, while servers
hold claims and requests fail.
"""

import collections
import dataclasses
import json
import random
from typing import Any

from keystoneauth1 import exceptions

from nova_vhpc.tests.functional.topology import test_publisher
from nova_vhpc.topology import model

SHARED, SEPARATE = model.BridgeKind

FAULTS = ('before', 'after', 'error', 'nonsense', 'half', 'conflict')
"""What happens to requests, by :class:`FaultyAdapter`: the connection breaks
before or after a request took effect, Placement answers 500, a read gets an
answer that is not one of Placement or that ends early, or writes are refused
as conflicts for a while."""

NONSENSE = (
    '',
    '[]',
    '{}',
    'null',
    '<html>login</html>',
    '{"resource_providers": [{}]}',
    '{"inventories": 5}',
    '{"usages": null}',
    '{"traits": 1}',
)


class _Answer:
    """An answer that Placement did not give."""

    def __init__(self, status_code: int, text: str) -> None:
        self.status_code = status_code
        self.text = text

    def json(self) -> Any:
        return json.loads(self.text)


class FaultyAdapter:
    """Placement's adapter; a request fails.

    :param adapter: the adapter that works.
    :param requests: number of requests before the fault.
    :param fault: one of :data:`FAULTS`.
    :param rng: source of chance for answers.
    """

    def __init__(
        self,
        adapter: Any,
        requests: int,
        fault: str,
        rng: random.Random,
    ) -> None:
        self._adapter = adapter
        self._requests: int | None = requests
        self._fault = fault
        self._rng = rng
        self._conflicts: int | None = None

    def request(self, url: str, method: str, **more: Any) -> Any:
        """Pass a request on, unless it is one that fails."""
        if self._requests is not None:
            self._requests -= 1
            if self._requests < 0 and self._concerns(method):
                return self._fail(url, method, more)
        return self._adapter.request(url, method, **more)

    def _concerns(self, method: str) -> bool:
        if self._fault in ('nonsense', 'half'):
            return method == 'GET'
        return self._fault != 'conflict' or method != 'GET'

    def _fail(self, url: str, method: str, more: dict[str, Any]) -> Any:
        if self._fault == 'before':
            raise exceptions.ConnectFailure('cut')
        if self._fault == 'conflict':
            if self._conflicts is None:
                self._conflicts = self._rng.randint(1, 25)
            self._conflicts -= 1
            if not self._conflicts:
                self._requests = None
            return _Answer(409, '{"errors": [{"detail": "conflict"}]}')
        self._requests = None
        if self._fault == 'error':
            return _Answer(500, 'internal error')
        if self._fault == 'nonsense':
            return _Answer(200, self._rng.choice(NONSENSE))
        answer = self._adapter.request(url, method, **more)
        if self._fault == 'after':
            raise exceptions.RequestTimeout('lost')
        end = self._rng.randrange(max(1, len(answer.text)))
        return _Answer(answer.status_code, answer.text[:end])


@dataclasses.dataclass(frozen=True)
class Claim:
    """A claim of a server.

    :ivar bridge: name of the bridge that the server is on.
    :ivar alone: whether the server has been given the uplink for itself.
    """

    bridge: str
    alone: bool


class RandomChangesCase(test_publisher.PlacementCase):
    """Has a real Placement, and checks what is offered in it."""

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

    def leave(self, chance: random.Random, claims: dict[str, Claim]) -> None:
        """Delete about a quarter of the servers."""
        for consumer in list(claims):
            if chance.random() < 0.25:
                self.nova('DELETE', f'/allocations/{consumer}')
                del claims[consumer]

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
