# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Last value: the smallest predictor, an example for plugins."""

from nova_vhpc.control.predictors import base


class LastValuePredictor:
    """Predicts that the state stays, so never a transition.

    Last value in the I/O-perception paper, section III.A, tables II and III.
    """

    __slots__ = ('_state',)

    def __init__(self) -> None:
        self._state = base.IDLE_STATE

    def observe(self, state: int, events: float) -> None:
        """Remember the state."""
        self._state = base.clean_state(state)

    def predict(self) -> int:
        """Return the state that was observed last."""
        return self._state

    @property
    def state_bytes(self) -> int:
        """See :class:`~.base.Predictor`."""
        return base.deep_bytes(self)
