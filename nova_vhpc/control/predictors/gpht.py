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

"""Global phase history table predictor."""

from nova_vhpc.control import quantise
from nova_vhpc.control.predictors import base

DEPTH = 8
ENTRIES = 128

_STATE_BITS = quantise.MAX_STATE.bit_length()
"""A state in the register; all of them make up one integer, which is hashed
faster than a tuple and takes less memory."""


class GphtPredictor:
    """GPHT (Isci, Contreras, Martonosi: MICRO-39, 2006, section 4).

    A shift register of the last states (GPHR) is looked up, whole, in a
    table of patterns (PHT). A known pattern gives the state that followed
    it last time; an unknown one is put into the table, in the place of the
    least recently used if need be, and the last state is predicted.

    :param depth: states in the register; Isci's choice is 8.
    :param entries: patterns in the table; Isci's choice is 128.
    :raises ValueError: depth or entries below 1.
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
        # A state is never 0, so shorter beginnings are patterns of their own.
        self._register = 0
        self._table: dict[int, int] = {}
        self._prediction = quantise.IDLE_STATE

    def observe(self, state: int, events: float) -> None:
        """Note what followed the pattern, then look up the next one."""
        self.learn(base.clean_state(state))

    def learn(self, state: int) -> int:
        """The same for a state within bounds.

        :returns: the prediction.
        """
        table = self._table
        register = self._register
        if register:
            # Taken out and put back, so that the order is that of use.
            table.pop(register, None)
            if len(table) >= self._entries:
                del table[next(iter(table))]
            table[register] = state
        register = (register << _STATE_BITS | state) & self._mask
        self._register = register
        self._prediction = prediction = table.get(register, state)
        return prediction

    def predict(self) -> int:
        """What followed this pattern last time, else the last state."""
        return self._prediction

    @property
    def state_bytes(self) -> int:
        """Bytes held."""
        return base.deep_bytes(self)
