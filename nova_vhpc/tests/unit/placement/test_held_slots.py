# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

from nova_vhpc.placement import held_slots
from nova_vhpc.tests import base
from nova_vhpc.topology import model

SHARED, SEPARATE = model.BridgeKind


def uplink(bridge: str, nic: str, slots: int, up: bool = True) -> model.Uplink:
    return model.Uplink(nic, bridge, SHARED, 1000, up, slots)


class OffersTest(base.TestCase):
    """Slots of one bridge, ``br``, unless another is named."""

    def reserved(
        self,
        slots: dict[str, int],
        claims: dict[str, int],
        down: tuple[str, ...] = (),
    ) -> dict[str, int]:
        """Return the number of reserved slots of each NIC."""
        return {
            offer.uplink.nic: offer.reserved
            for offer in held_slots.offers(
                [uplink('br', n, slots[n], n not in down) for n in slots],
                [held_slots.Published('br', n, claims[n]) for n in claims],
            )
        }

    def test_claims_beyond_own_slots_take_those_of_others(self) -> None:
        for case, slots, claims, down, reserved in (
            ('within', {'a': 2, 'b': 2}, {'a': 2, 'b': 1}, (), (0, 0)),
            ('beyond', {'a': 1, 'b': 4}, {'a': 3, 'b': 1}, (), (0, 2)),
            ('vanished', {'a': 2, 'b': 2}, {'gone': 3}, (), (2, 1)),
            ('up first', {'a': 2, 'b': 2}, {'gone': 2}, ('a',), (0, 2)),
            ('a is full', {'a': 4, 'b': 4}, {'a': 4, 'gone': 3}, (), (0, 3)),
            ('too many', {'a': 4}, {'a': 4, 'gone': 4}, (), (4,)),
        ):
            with self.subTest(case):
                found = self.reserved(slots, claims, down)
                self.assertEqual(reserved, tuple(found.values()))

    def test_no_slot_is_offered_when_one_of_too_many_guests_leaves(
        self,
    ) -> None:
        slots = {'a': 1, 'b': 2, 'c': 2}
        claims = {'a': 2, 'b': 2, 'c': 2, 'gone': 1}
        reserved = self.reserved(slots, claims)
        for nic in slots:
            left = claims[nic] - 1
            self.assertGreaterEqual(left, slots[nic] - reserved[nic], nic)

    def test_bridge_stays_separate_while_its_guest_has_it_alone(self) -> None:
        for published in (
            held_slots.Published('br', 'a', 1, separate=True),
            # Its NIC was renamed at the same time; or the bridge.
            held_slots.Published('br', 'gone', 1, separate=True),
            held_slots.Published('old', 'a', 1, separate=True),
        ):
            (offer,) = held_slots.offers([uplink('br', 'a', 8)], [published])
            self.assertEqual(SEPARATE, offer.uplink.kind, published)
            self.assertEqual((1, 1), (offer.uplink.slots, offer.reserved))

    def test_bridge_becomes_shared_when_its_guest_has_left(self) -> None:
        (offer,) = held_slots.offers(
            [uplink('br', 'a', 8)],
            [held_slots.Published('br', 'a', 0, separate=True)],
        )
        self.assertEqual((SHARED, 8), (offer.uplink.kind, offer.uplink.slots))
        self.assertEqual(0, offer.reserved)

    def test_guests_of_a_renamed_bridge_keep_their_slots(self) -> None:
        (offer,) = held_slots.offers(
            [uplink('new', 'a', 4)], [held_slots.Published('old', 'a', 3)]
        )
        self.assertEqual(3, offer.reserved)

    def test_guests_of_another_bridge_take_no_slot(self) -> None:
        offers = held_slots.offers(
            [uplink('br', 'a', 4), uplink('br', 'b', 4)],
            [
                held_slots.Published('gone', 'z', 3),
                # Only one of the NICs was on it: it was not renamed.
                held_slots.Published('other', 'a', 3, separate=True),
            ],
        )
        self.assertEqual([0, 0], [offer.reserved for offer in offers])
