# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""``none``: every VM keeps the pins that Nova gave it."""

from nova_vhpc.control import config as control_config
from nova_vhpc.control.pinning import base


class NonePolicy:
    """Pins no VM; the smallest pinning policy, an example for plugins."""

    uses_phases = False

    def __init__(self, config: control_config.ControlConfig) -> None:
        """Accept the configuration, like every policy; it is not used."""

    def pin(self, context: base.PinContext) -> base.PinDecision:
        """Return no pins."""
        return base.PinDecision()
