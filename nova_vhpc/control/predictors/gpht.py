# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Global phase history table (GPHT) predictor."""

from nova_vhpc.control.predictors import base

DEPTH = 8
ENTRIES = 128

_STATE_BITS = base.MAX_STATE.bit_length()
"""Bits of one state in the register. The register is a single integer, which
is hashed faster than a tuple and takes less memory."""


class GphtPredictor:
    """GPHT (Isci, Contreras, Martonosi: MICRO-39, 2006, section 4).

    A shift register of the last states, the global phase history register
    (GPHR), is looked up as a whole in a pattern history table (PHT). If the
    table has the pattern, the state that followed it last time is
    predicted. Otherwise the last state is predicted, and the pattern enters
    the table, where it replaces the least recently used one if need be.

    :param depth: number of states in the register; 8 in the paper.
    :param entries: number of patterns in the table; 128 in the paper.
    :raises ValueError: ``depth`` or ``entries`` is below 1.
    """

    __slots__ = ('_entries', '_mask', '_prediction', '_register', '_table')

    def __init__(self, depth: int = DEPTH, entries: int = ENTRIES) -> None:
        if depth < 1 or entries < 1:
            raise ValueError(
                'depth and entries must be at least 1, not '
                f'{depth} and {entries}'
            )
        self._mask = (1 << depth * _STATE_BITS) - 1
        self._entries = entries
        # A state is never 0, so a register that is not yet full is unlike any
        # full one.
        self._register = 0
        self._table: dict[int, int] = {}
        self._prediction = base.IDLE_STATE

    def observe(self, state: int, events: float) -> None:
        """Record the state after the last pattern, look up the next one."""
        self.learn(base.clean_state(state))

    def learn(self, state: int) -> int:
        """Observe a state that is known to be within bounds.

        :returns: the prediction for the next period.
        """
        table = self._table
        register = self._register
        if register:
            # Removed and inserted again, which keeps the order of last use.
            table.pop(register, None)
            if len(table) >= self._entries:
                del table[next(iter(table))]
            table[register] = state
        register = (register << _STATE_BITS | state) & self._mask
        self._register = register
        self._prediction = prediction = table.get(register, state)
        return prediction

    def predict(self) -> int:
        """Return what followed the pattern last time, or the last state."""
        return self._prediction

    @property
    def state_bytes(self) -> int:
        """See :class:`~.base.Predictor`."""
        return base.deep_bytes(self)
