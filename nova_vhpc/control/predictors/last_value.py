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

"""Last value: the smallest predictor, an example for plugins."""

from nova_vhpc.control import quantise
from nova_vhpc.control.predictors import base


class LastValuePredictor:
    """Predicts that the state stays, so never a transition.

    Last value in the I/O-perception paper, section III.A, tables II and III.
    """

    __slots__ = ('_state',)

    def __init__(self) -> None:
        self._state = quantise.IDLE_STATE

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
