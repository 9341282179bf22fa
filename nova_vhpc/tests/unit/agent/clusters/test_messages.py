# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""Messages of other agents are checked when they arrive."""

import json
from typing import Any

import hypothesis
from hypothesis import strategies as st
from oslotest import base

from nova_vhpc.agent.clusters import messages, names, protocol
from nova_vhpc.control.model import ClusterPlan, Phase
from nova_vhpc.control.slots import frame
from nova_vhpc.control.slots import messages as slots
from nova_vhpc.control.slots import protocol as protocol_of_slots

COUNTS = st.integers(0, 2**63 - 1)
NAMES = st.text(min_size=1).filter(str.isprintable)
FIELDS = {
    'cluster': 'c',
    'host': 'h',
    'boot': 1,
    'seq': 2,
    'phase': 'io',
    'lease_ms': 6000,
}

MESSAGE = slots.Message(
    'c',
    'h',
    1,
    2,
    6_000_000,
    slots.Report(
        wanted=3,
        width=8,
        blocked=3,
        avoided=12,
        taken=48,
        plays=True,
        rests=2,
        ready=True,
        decision=slots.Decision(0b1000, 0b1001, 3, 8, 2, 7),
        slot_us=50_000,
    ),
    10**15,
    {'a': -5},
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5), inner, max_size=6)
    ),
    max_leaves=6,
)


class SlotMessageTest(base.BaseTestCase):
    def test_message_arrives_as_it_was_sent(self) -> None:
        unplaced = slots.Decision(0, 0, 4, 8, 2, 7)
        for decision in (MESSAGE.statement.decision, unplaced, None):
            message = slots.Message(
                'c',
                'h',
                1,
                2,
                6_000_000,
                MESSAGE.statement._replace(decision=decision),
            )
            fields = json.loads(json.dumps(messages.encode_slots(message)))
            self.assertEqual(message, messages.decode_slots(fields))

    def test_fields_of_newer_versions_are_ignored(self) -> None:
        fields = messages.encode_slots(MESSAGE) | {'colour': 'blue'}
        self.assertEqual(MESSAGE, messages.decode_slots(fields))

    def test_message_is_small(self) -> None:
        self.assertLess(len(json.dumps(messages.encode_slots(MESSAGE))), 400)

    def refused(self, **changes: Any) -> None:
        self.assertRaises(
            (KeyError, TypeError, ValueError),
            messages.decode_slots,
            messages.encode_slots(MESSAGE) | changes,
        )

    def test_impossible_values_are_refused(self) -> None:
        decision = messages.encode_slots(MESSAGE)['decision']
        self.refused(wanted=0)
        self.refused(wanted=frame.SLOTS + 1)
        self.refused(wanted=True)
        self.refused(width=0)
        self.refused(width=2**63)
        self.refused(taken=-1)
        self.refused(rests=protocol_of_slots.FARTHEST + 1)
        self.refused(blocked=frame.ALL + 1)
        self.refused(plays=1)
        self.refused(host='h' * (names.MAX_NAME + 1))
        self.refused(lags={str(number): 0 for number in range(5)})
        self.refused(lags={'a': 10**18})
        self.refused(decision=decision | {'base': 0b10})
        self.refused(decision=decision | {'slots': frame.ALL + 1})
        self.refused(decision=decision | {'width': 0})
        self.refused(decision=decision | {'epoch': 2**31})

    @hypothesis.given(
        st.dictionaries(
            st.sampled_from(sorted(messages.encode_slots(MESSAGE))), ANYTHING
        )
    )
    def test_nonsense_raises_what_the_endpoint_expects(
        self, changes: dict[str, Any]
    ) -> None:
        try:
            message = messages.decode_slots(
                messages.encode_slots(MESSAGE) | changes
            )
        except (KeyError, TypeError, ValueError):
            return
        # What is accepted can be used.
        self.assertIn(message.statement.wanted, range(1, frame.SLOTS + 1))
        decision = message.statement.decision
        if decision is not None:
            self.assertFalse(decision.base & ~decision.slots)
            self.assertLessEqual(decision.slots, frame.ALL)


class PhaseMessageTest(base.BaseTestCase):
    @hypothesis.given(
        st.builds(
            protocol.Message,
            NAMES,
            NAMES,
            COUNTS,
            COUNTS,
            st.integers(0, 10**6).map(lambda ms: ms * 1000),
            st.builds(ClusterPlan, st.sampled_from(Phase), st.none() | COUNTS),
        )
    )
    def test_encoded_message_is_decoded_unchanged(
        self, message: protocol.Message
    ) -> None:
        fields = json.loads(json.dumps(messages.encode_phase(message)))
        self.assertEqual(message, messages.decode_phase(fields))

    def test_unknown_fields_are_ignored(self) -> None:
        self.assertEqual(
            2, messages.decode_phase({**FIELDS, 'mood': 'good'}).seq
        )

    def test_invalid_fields_are_refused(self) -> None:
        for name, value in (
            ('boot', 'x'),
            ('seq', -1),
            ('seq', True),
            ('lease_ms', 2**63),
            ('phase', 'sleeping'),
            ('cluster', None),
            ('host', 3),
            ('host', ''),
            ('host', 'h\nforged log line'),
            ('cluster', 'half a pair \ud800'),
            ('host', 'h' * (names.MAX_NAME + 1)),
            ('cluster', 'c' * (names.MAX_NAME + 1)),
            ('min_slice_us', 1.5),
        ):
            self.assertRaises(
                (KeyError, TypeError, ValueError),
                messages.decode_phase,
                {**FIELDS, name: value},
            )
        for name in FIELDS:
            fields = {k: v for k, v in FIELDS.items() if k != name}
            self.assertRaises(KeyError, messages.decode_phase, fields)
