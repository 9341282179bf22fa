# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Cut the publication of a host's uplinks while servers claim them.

Each host has a real Placement of its own, in this process. Its options, NICs
and links change, its publications are cut at random requests, and servers
come and go, also in the middle of a publication.
"""

import collections
import dataclasses
import random
import unittest
import uuid
from collections.abc import Callable
from typing import Any

from nova_vhpc.placement import client as placement_client
from nova_vhpc.placement import publisher
from nova_vhpc.tests.functional.topology import test_publisher
from nova_vhpc.topology import model
from nova_vhpc_lab.soak import part, random_changes

PUBLICATIONS = 12
"""Publications of each host."""

_REQUESTS = 40
"""Requests of a publication that writes much, about."""


class Host(random_changes.RandomChangesCase):
    """One compute node; the test is its life.

    :param rng: source of all that happens to it.
    :ivar counts: publications by outcome, and checks.
    """

    def __init__(self, rng: random.Random) -> None:
        super().__init__('live')
        self.rng = rng
        self.counts: collections.Counter[str] = collections.Counter()
        self.claims: dict[str, random_changes.Claim] = {}
        # Most slots of each bridge since the last whole publication.
        self.slots: collections.Counter[str] = collections.Counter()

    def setUp(self) -> None:
        super().setUp()
        self.nova(
            'PUT',
            f'/resource_providers/{self.root_uuid}/traits',
            resource_provider_generation=1,
            traits=['HW_CPU_X86_VMX'],
        )
        self.neutron_uuid = str(uuid.uuid4())
        self.nova(
            'POST',
            '/resource_providers',
            name='cn1:Open vSwitch agent:br-a',
            uuid=self.neutron_uuid,
            parent_provider_uuid=self.root_uuid,
        )
        self.nova('PUT', '/traits/CUSTOM_PHYSNET_A')
        self.nova(
            'PUT',
            f'/resource_providers/{self.neutron_uuid}/inventories',
            resource_provider_generation=0,
            inventories={'NET_BW_EGR_KILOBIT_PER_SEC': {'total': 1000}},
        )
        self.nova(
            'PUT',
            f'/resource_providers/{self.neutron_uuid}/traits',
            resource_provider_generation=1,
            traits=['CUSTOM_PHYSNET_A'],
        )

    def live(self) -> None:
        """Change, publish, cut and claim; at last publish without a cut."""
        others = self._others()
        uplinks: list[model.Uplink] = []
        for number in range(1, PUBLICATIONS + 1):
            uplinks = self._changed(uplinks)
            self._publish(uplinks, number)
            self.counts['checks'] += 1
            self.assertEqual(others, self._others())
            for _ in range(self.rng.randint(0, 3)):
                self.claim_any(self.rng, self.claims)
            self._check_slots()
            self.leave(self.rng, self.claims)
        self._repair(uplinks)
        self.assertEqual(others, self._others())

    def _changed(self, uplinks: list[model.Uplink]) -> list[model.Uplink]:
        """Return the next uplinks: others, or the same with other slots."""
        if not uplinks or self.rng.random() < 0.5:
            uplinks = self.random_uplinks(self.rng)
        return [
            uplink
            if uplink.kind is model.BridgeKind.SEPARATE
            else dataclasses.replace(uplink, slots=self.rng.choice((1, 2, 4)))
            for uplink in uplinks
        ]

    def _publish(self, uplinks: list[model.Uplink], number: int) -> None:
        for bridge, slots in _slots(uplinks).items():
            self.slots[bridge] = max(self.slots[bridge], slots)
        fault = self.rng.choice(
            (*(None, 'claim', 'claim') * 3, *random_changes.FAULTS)
        )
        requests = self.rng.randrange(_REQUESTS)
        adapter: Any = self.adapter()
        if fault == 'claim':
            adapter = _Watched(
                adapter, requests, self._come_and_go, self._check_slots
            )
        elif fault is not None:
            adapter = random_changes.FaultyAdapter(
                adapter, requests, fault, self.rng
            )
        client = placement_client.PlacementClient(adapter)
        try:
            publisher.Publisher(client, ['cn1']).publish(
                test_publisher.topology(*uplinks), number
            )
        except placement_client.PlacementError:
            if fault in (None, 'claim'):
                raise
            self.counts['cut'] += 1
        else:
            self.counts['whole'] += 1
            self.slots = _slots(uplinks)
            self.check(uplinks, self.claims)

    def _come_and_go(self) -> None:
        self.leave(self.rng, self.claims)
        self.claim_any(self.rng, self.claims)

    def _check_slots(self) -> None:
        """Check that no slot is offered twice, also within a publication."""
        guests = collections.Counter(c.bridge for c in self.claims.values())
        offers = collections.Counter[str]()
        for bridge, free in self.offers().values():
            offers[bridge] += free
        for bridge, free in offers.items():
            self.assertLessEqual(
                free,
                max(0, self.slots[bridge] - guests[bridge]),
                (bridge, self.slots[bridge], guests[bridge]),
            )

    def _repair(self, uplinks: list[model.Uplink]) -> None:
        """Check that one publication without a cut makes all right."""
        topology = test_publisher.topology(*uplinks)
        healthy = publisher.Publisher(self.client, ['cn1'])
        healthy.publish(topology, PUBLICATIONS + 1)
        self.check(uplinks, self.claims)
        again = healthy.publish(topology, PUBLICATIONS + 1)
        self.assertEqual(0, again.writes)
        for consumer in self.claims:
            self.nova('DELETE', f'/allocations/{consumer}')
        self.claims.clear()
        healthy.publish(topology, PUBLICATIONS + 2)
        self.assertEqual(
            sum(uplink.slots for uplink in uplinks if uplink.up),
            sum(free for _, free in self.offers().values()),
        )

    def _others(self) -> list[Any]:
        """Return what Nova and Neutron own, and that no claim is lost."""
        inventories = self.client.inventories(self.root_uuid)[1]
        traits = self.client.traits(self.root_uuid)[1] - {model.TRAIT_HOST}
        lost = [
            consumer
            for consumer in self.claims
            if len(self.client.claimed_uplinks(consumer)) != 1
        ]
        return [
            *(inventories, traits, lost),
            self.client.inventories(self.neutron_uuid),
            self.client.traits(self.neutron_uuid),
        ]


class _Watched:
    """Placement's adapter; servers come and go before one of the requests.

    :param requests: number of requests before.
    :param check: called before each write of inventories.
    """

    def __init__(
        self,
        adapter: Any,
        requests: int,
        come_and_go: Callable[[], None],
        check: Callable[[], None],
    ) -> None:
        self._adapter = adapter
        self._requests = requests
        self._come_and_go = come_and_go
        self._check = check

    def request(self, url: str, method: str, **more: Any) -> Any:
        self._requests -= 1
        if self._requests == -1:
            self._come_and_go()
        if method == 'PUT' and url.endswith('/inventories'):
            self._check()
        return self._adapter.request(url, method, **more)


def _slots(uplinks: list[model.Uplink]) -> collections.Counter[str]:
    slots = collections.Counter[str]()
    for uplink in uplinks:
        slots[uplink.bridge] += uplink.slots
    return slots


class Publication(part.Part):
    """Publishes the uplinks of hosts, one after another."""

    name = 'publication'
    counted = 'hosts'

    def run(self, seed: int, first: int, budget: part.Budget) -> bool:
        """Print what is found and how to repeat it; True if nothing is."""
        counts: collections.Counter[str] = collections.Counter()
        hosts = failed = 0
        for number in budget.numbers(first):
            host = Host(random.Random(f'{seed} {self.name} {number}'))
            result = unittest.TestResult()
            with part.unlogged():
                host.run(result)
            counts += host.counts
            for _, text in result.errors + result.failures:
                print(f'{text}\n{self.repeat(seed, number)}', flush=True)
            failed += not result.wasSuccessful()
            hosts += 1
        print(
            f'{self.name}: {hosts} hosts, {counts.total() - counts["checks"]} '
            f'publications, {counts["cut"]} cut, {counts["checks"]} checks, '
            f'{failed} hosts failed',
            flush=True,
        )
        return not failed
