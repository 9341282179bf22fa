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

"""How readily a change is predicted: hits against transitions seen."""

EVEN = 1.0
BOLD = 1.5
BOLDER = 1.8
NEW = 3.0
"""A change is predicted where staying is less than so many times as likely.

1 gives most hits if the probabilities are right; more sees more of the
transitions, at the price of false ones. The last is for states that were
never met before: such are mostly strays."""

_BUSY = 0.35
"""Share of periods with a transition from which on boldness is assumed to
pay: staying is wrong so often then that there is little to lose."""

_USUAL_TRANSITIONS = 5.0
_USUAL_PERIODS = 20.0
"""What the share is assumed to be before anything was seen."""

_MARGIN = 3.0
_MARGIN_SHARE = 0.01
"""Hits, and share of all periods, by which one must be better than the
other before that counts more than the share of transitions."""

_PAYS = 3
"""Margins by which what was predicted must be ahead of staying before it
pays for more boldness."""

_WORTH = 0.6
"""What a transition seen counts besides the hit that it is, in favour of
boldness, and against it."""

_WORTH_LOSING = 0.2


class Boldness:
    """Decides between staying and the likeliest change.

    The paper holds transitions to be the more important (section III.A),
    but a false one costs a hit that staying would have won. Where
    transitions are frequent the bold threshold is used, where they are
    rare the even one. The hits and the transitions seen of both are
    counted as if each had been in force all the time, and overrule that
    when they differ by a margin.

    What was really predicted is compared with staying all the time.
    Boldness ends where it has brought fewer hits, by the margin: changes
    do not come true then as their probabilities promise. Where it has
    brought more, by some margins, these pay for even more boldness.
    """

    __slots__ = (
        '_bold',
        '_changing',
        '_gain',
        '_gain_seen',
        '_lead',
        '_periods',
        '_threshold',
        '_transitions',
    )

    def __init__(self) -> None:
        self._periods = 0
        self._transitions = 0
        self._gain = 0
        self._gain_seen = 0
        self._bold = False
        # What was really predicted, and its hits less those of staying.
        self._changing = False
        self._lead = 0
        self._threshold = EVEN

    def learn(self, stayed: bool, expected: bool) -> None:
        """Count the period that has ended.

        :param stayed: the state stayed.
        :param expected: it changed to the very state that was likeliest.
        """
        periods = self._periods = self._periods + 1
        if stayed:
            if self._changing:
                self._lead -= 1
            if self._bold:
                self._gain -= 1
        else:
            self._transitions += 1
            if expected:
                if self._changing:
                    self._lead += 1
                if self._bold:
                    self._gain += 1
                    self._gain_seen += 1
        gain = self._gain
        seen = self._gain_seen
        margin = _MARGIN + _MARGIN_SHARE * periods
        rate = (self._transitions + _USUAL_TRANSITIONS) / (
            periods + _USUAL_PERIODS
        )
        losing = gain + _WORTH_LOSING * seen < -margin
        pays = rate > _BUSY or gain + _WORTH * seen > margin
        if self._lead < -margin or losing or not pays:
            self._threshold = EVEN
        elif self._lead > _PAYS * margin:
            self._threshold = BOLDER
        else:
            self._threshold = BOLD

    def is_change(self, stay: float, change: float, is_new: bool) -> bool:
        """Whether to predict the change, for these two probabilities.

        :param is_new: the current state was never met before.
        """
        # Only where the two thresholds differ is there anything to gain.
        self._bold = EVEN * change <= stay < BOLD * change
        threshold = NEW if is_new else self._threshold
        self._changing = stay < threshold * change
        return self._changing
