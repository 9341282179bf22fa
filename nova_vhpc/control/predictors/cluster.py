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

"""What the predictors of a virtual cluster's members share."""

from nova_vhpc.control.predictors import boldness, neighbours

_MEMORY = 0.98
"""An expert's weight is the product of the probabilities that it gave to
what came, each forgotten at this rate per period."""

_LEAST = 1e-250
"""Weights are kept relative to the greatest; none may come down to 0, from
where there is no way back."""

_EVEN = (1.0, 1.0, 1.0, 1.0, 1.0)

_AWAY_PERIODS = 10
"""Periods without a sample until a member counts as gone."""


class Cluster:
    """The members learn together how far each expert is to be trusted.

    They run one program, so what is right for one is mostly right for all,
    and their mean is less a matter of luck. A period is *settled* when the
    first of them is asked for a prediction: by then all should have been
    told what they did. A VM alone is a cluster of one.

    :ivar boldness: how readily a change is predicted.
    :ivar neighbours: what followed moments like this one.
    :ivar weights: of the experts, the greatest being 1.
    :ivar share: of one member in the cluster; 1 for a VM alone.
    """

    __slots__ = (
        '_away',
        '_gains',
        '_joined',
        '_members',
        '_observed',
        'boldness',
        'neighbours',
        'share',
        'weights',
    )

    def __init__(self) -> None:
        self.boldness = boldness.Boldness()
        self.neighbours = neighbours.Neighbours()
        self.weights = _EVEN
        self.share = 1.0
        # Geometric means of the probabilities that came true.
        self._gains = _EVEN
        self._joined = 0
        self._members: set[int] = set()
        # Who has told of the period; of the others, for how many they have
        # not.
        self._observed: set[int] = set()
        self._away: dict[int, int] = {}

    def __len__(self) -> int:
        """Members that are there; one at least."""
        return len(self._members) or 1

    def join(self) -> int:
        """Number of a new member; it is in when it observes something."""
        self._joined += 1
        return self._joined

    def begin(self, member: int) -> bool:
        """A member is about to tell of a period.

        :returns: whether it was there until now, so that what was predicted
            for it can be judged.
        """
        if member in self._observed:
            self.settle()
            return True
        if member in self._members:
            return True
        self._members.add(member)
        self.share = 1.0 / len(self)
        return False

    def judge(self, p: float, q: float, r: float, s: float, t: float) -> None:
        """What each of the five experts gave to what came true.

        The probabilities are those of one member, and above 0.
        """
        share = self.share
        a, b, c, d, e = self._gains
        self._gains = (
            a * p**share,
            b * q**share,
            c * r**share,
            d * s**share,
            e * t**share,
        )

    def observe(self, member: int, state: int, events: float) -> None:
        """A member's period."""
        self._observed.add(member)
        self.neighbours.observe(member, state, events)

    def settle(self) -> None:
        """All that will be told of this period was told."""
        observed = self._observed
        if not observed:
            return
        self.boldness.settle(len(observed) / len(self._members))
        self._weigh()
        self.neighbours.settle()
        if self._away or len(observed) < len(self._members):
            self._miss()
        observed.clear()

    def _weigh(self) -> None:
        """Renew the weights by what the members' probabilities came to."""
        p, q, r, s, t = self._gains
        a, b, c, d, e = self.weights
        a = p * a**_MEMORY
        b = q * b**_MEMORY
        c = r * c**_MEMORY
        d = s * d**_MEMORY
        e = t * e**_MEMORY
        scale = 1.0 / max(a, b, c, d, e)
        self.weights = (
            a * scale + _LEAST,
            b * scale + _LEAST,
            c * scale + _LEAST,
            d * scale + _LEAST,
            e * scale + _LEAST,
        )
        self._gains = _EVEN

    def _miss(self) -> None:
        """Let those go that were away for too long."""
        away = {
            member: self._away.get(member, 0) + 1
            for member in self._members - self._observed
        }
        gone = {
            member
            for member, periods in away.items()
            if periods >= _AWAY_PERIODS
        }
        for member in gone:
            del away[member]
        self._away = away
        if gone:
            self._members -= gone
            self.share = 1.0 / len(self)
            self.neighbours.leave(gone)
