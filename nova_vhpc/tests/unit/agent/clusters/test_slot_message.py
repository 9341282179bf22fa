# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""Messages about slots are checked when they arrive."""

import json
from typing import Any

import hypothesis
from hypothesis import strategies as st
from oslotest import base

from nova_vhpc.agent.clusters import protocol, slot_message
from nova_vhpc.control.slots import frame, messages

MESSAGE = messages.Message(
    'c',
    'h',
    1,
    2,
    6_000_000,
    messages.Report(
        4, 3, 12, True, True, messages.Decision(frame.Place(3, 4), 4, 2, 7)
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
        unplaced = messages.Decision(None, 4, 2, 7)
        for decision in (MESSAGE.report.decision, unplaced, None):
            message = messages.Message(
                'c',
                'h',
                1,
                2,
                6_000_000,
                MESSAGE.report._replace(decision=decision),
            )
            fields = json.loads(json.dumps(slot_message.encode(message)))
            self.assertEqual(message, slot_message.decode(fields))

    def test_fields_of_newer_versions_are_ignored(self) -> None:
        fields = slot_message.encode(MESSAGE) | {'colour': 'blue'}
        self.assertEqual(MESSAGE, slot_message.decode(fields))

    def test_message_is_small(self) -> None:
        self.assertLess(len(json.dumps(slot_message.encode(MESSAGE))), 400)

    def refused(self, **changes: Any) -> None:
        self.assertRaises(
            (KeyError, TypeError, ValueError),
            slot_message.decode,
            slot_message.encode(MESSAGE) | changes,
        )

    def test_impossible_values_are_refused(self) -> None:
        decision = slot_message.encode(MESSAGE)['decision']
        self.refused(wanted=3)
        self.refused(wanted=True)
        self.refused(blocked=frame.ALL + 1)
        self.refused(plays=1)
        self.refused(host='h' * (protocol.MAX_NAME + 1))
        self.refused(lags={str(number): 0 for number in range(5)})
        self.refused(lags={'a': 10**18})
        self.refused(decision=decision | {'first': 4})
        self.refused(decision=decision | {'every': 32})
        self.refused(decision=decision | {'epoch': 2**31})

    @hypothesis.given(
        st.dictionaries(
            st.sampled_from(sorted(slot_message.encode(MESSAGE))), ANYTHING
        )
    )
    def test_nonsense_raises_what_the_endpoint_expects(
        self, changes: dict[str, Any]
    ) -> None:
        try:
            message = slot_message.decode(
                slot_message.encode(MESSAGE) | changes
            )
        except (KeyError, TypeError, ValueError):
            return
        # What is accepted can be used.
        self.assertIn(message.report.wanted, frame.COUNTS)
        decision = message.report.decision
        if decision is not None and decision.place is not None:
            self.assertLess(decision.place.first, decision.place.every)
