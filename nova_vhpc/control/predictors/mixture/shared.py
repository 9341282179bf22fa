# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What the adaptive predictors of a virtual cluster's members share.

The experts of each member, but for GPHT, learn here for all.
"""

from nova_vhpc.control.predictors import base, gpht
from nova_vhpc.control.predictors.mixture import change_bias, nearest_history

_MEMORY = 0.98
"""Rate of forgetting per period: an expert's weight is the product of the
probabilities that it gave to the states that came, each of them raised to this
power once per period since."""

LEAST = 1e-5
"""Least probability that an expert may give. It keeps weights above 1e-251: a
weight of 0 could never grow again."""

_EVEN = (1.0, 1.0, 1.0, 1.0, 1.0)

_MAX_FACTORS = 60
"""Members whose probabilities may be multiplied; a product of more might be
rounded to 0."""

_ABSENT_PERIODS = 10
"""Periods without a sample after which a member is removed."""


class SharedLearning:
    """What members learn together: weights of experts, bias, histories.

    The members run one program, so a setting that is right for one is mostly
    right for all, and their mean is less a matter of luck than the result of
    one. A period ends when the first member is asked for a prediction; by
    then all members should have observed. A VM alone is a cluster of one.

    :ivar change_bias: bias towards changes.
    :ivar nearest_history: nearest histories of all members.
    :ivar observed: numbers of the members that observed in this period.
    :ivar likelihoods: one tuple per member that observed and predicted: the
        probabilities, at least :data:`LEAST`, that the five experts gave to
        the state that came.
    :ivar weights: weights of the experts, relative to each other.
    :ivar share: share of one member in the cluster; 1 for a VM alone.
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
        # By member without a sample: number of periods in a row.
        self._absences: dict[int, int] = {}

    def __len__(self) -> int:
        """Return the number of present members, at least 1."""
        return len(self._members) or 1

    def join(self) -> int:
        """Return the number of a new member, present once it observes."""
        self._last_number += 1
        return self._last_number

    def observe(self, member: int, state: int, events: float) -> bool:
        """Take the period of one member.

        :param member: number that :meth:`join` returned.
        :returns: whether the member was present before, so that its
            prediction for this period can be judged.
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
        """Learn from the period that all members have observed."""
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
        """Multiply the weights with the mean likelihood of the members."""
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
        """Remove members without a sample for :data:`_ABSENT_PERIODS`."""
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


class GphtExpert:
    """GPHT as an expert: its prediction and how probable that is.

    The probability is the share of predictions that came true. It is
    counted apart for predictions of staying and of a change, because these
    differ most; each begins at one half.

    :ivar expected: predicted state.
    :ivar trust: probability of ``expected``, 0 to 1.
    """

    __slots__ = (
        '_counts',
        '_gpht',
        '_of_changes',
        '_of_stays',
        'expected',
        'trust',
    )

    def __init__(self) -> None:
        self._gpht = gpht.GphtPredictor()
        # Predictions made and predictions that came true.
        self._of_stays = [2, 1]
        self._of_changes = [2, 1]
        self._counts = self._of_stays
        self.expected = base.IDLE_STATE
        self.trust = 0.5

    def observe(self, state: int) -> None:
        """Count whether the prediction came true and make the next one."""
        counts = self._counts
        counts[0] += 1
        if state == self.expected:
            counts[1] += 1
        self.expected = expected = self._gpht.learn(state)
        counts = self._of_stays if expected == state else self._of_changes
        self._counts = counts
        self.trust = counts[1] / counts[0]
