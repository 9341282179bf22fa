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

from nova_vhpc.control.predictors.mixture import change_bias, nearest_history

_MEMORY = 0.98
"""An expert's weight is the product of the probabilities that it gave to
what came, each forgotten at this rate per period."""

LEAST = 1e-5
"""Probabilities are to be no less. So weights stay above 1e-251, far from 0,
from where there is no way back."""

_EVEN = (1.0, 1.0, 1.0, 1.0, 1.0)

_MAX_FACTORS = 60
"""Members whose probabilities may be multiplied: more might come down to 0."""

_ABSENT_PERIODS = 10
"""Periods without a sample until a member counts as gone."""


class SharedLearning:
    """The members learn together how far each expert is to be trusted.

    They run one program, so what is right for one is mostly right for all,
    and their mean is less a matter of luck. A period is *settled* when the
    first of them is asked for a prediction: by then all should have been
    told what they did. A VM alone is a cluster of one.

    :ivar change_bias: how readily a change is predicted.
    :ivar nearest_history: what followed moments like this one.
    :ivar observed: the members that have told of the period.
    :ivar likelihoods: what each of the five experts gave to what came true, by
        member; :data:`LEAST` at least.
    :ivar weights: of the experts, in proportion to each other.
    :ivar share: of one member in the cluster; 1 for a VM alone.
    """

    __slots__ = (
        '_absences',
        '_last_number',
        '_members',
        'change_bias',
        'likelihoods',
        'nearest_history',
        'observed',
        'share',
        'weights',
    )

    def __init__(self) -> None:
        self.change_bias = change_bias.ChangeBias()
        self.nearest_history = nearest_history.NearestHistory()
        self.weights = _EVEN
        self.share = 1.0
        self.likelihoods: list[tuple[float, ...]] = []
        self.observed: set[int] = set()
        self._last_number = 0
        self._members: set[int] = set()
        # For how many periods those have been away that are.
        self._absences: dict[int, int] = {}

    def __len__(self) -> int:
        """Members that are there; one at least."""
        return len(self._members) or 1

    def join(self) -> int:
        """Number of a new member; it is in when it observes something."""
        self._last_number += 1
        return self._last_number

    def observe(self, member: int, state: int, events: float) -> bool:
        """Take a member's period.

        :returns: whether it was there until now, so that what was predicted
            for it can be judged.
        """
        observed = self.observed
        was_there = member in self._members
        if member in observed:
            self.end_period()
        elif not was_there:
            self._members.add(member)
            self.share = 1.0 / len(self._members)
        observed.add(member)
        self.nearest_history.observe(member, state, events)
        return was_there

    def end_period(self) -> None:
        """All that will be told of this period was told."""
        observed = self.observed
        if not observed:
            return
        self.change_bias.end_period(len(observed) / len(self._members))
        self._update_weights()
        self.nearest_history.end_period()
        if self._absences or len(observed) < len(self._members):
            self._drop_absent()
        observed.clear()

    def _update_weights(self) -> None:
        """Renew the weights by what the members' probabilities came to."""
        likelihoods = self.likelihoods
        share = self.share
        if len(likelihoods) > _MAX_FACTORS:
            likelihoods = [
                tuple([p**share for p in given]) for given in likelihoods
            ]
            share = 1.0
        p = q = r = s = t = 1.0
        for u, v, w, x, y in likelihoods:
            p *= u
            q *= v
            r *= w
            s *= x
            t *= y
        if share != 1.0:
            p **= share
            q **= share
            r **= share
            s **= share
            t **= share
        a, b, c, d, e = self.weights
        self.weights = (
            p * a**_MEMORY,
            q * b**_MEMORY,
            r * c**_MEMORY,
            s * d**_MEMORY,
            t * e**_MEMORY,
        )
        self.likelihoods.clear()

    def _drop_absent(self) -> None:
        """Let those go that were away for too long."""
        absences = {
            member: self._absences.get(member, 0) + 1
            for member in self._members - self.observed
        }
        gone = {
            member
            for member, periods in absences.items()
            if periods >= _ABSENT_PERIODS
        }
        for member in gone:
            del absences[member]
        self._absences = absences
        if gone:
            self._members -= gone
            self.share = 1.0 / len(self)
            self.nearest_history.remove_members(gone)
