# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""``none``: every VM keeps the time slice of its flavor."""

from nova_vhpc.control import config as control_config
from nova_vhpc.control.slices import base


class NonePolicy:
    """Changes no slice; the smallest slice policy, an example for plugins."""

    uses_io = False

    def __init__(self, config: control_config.ControlConfig) -> None:
        """Accept the configuration, like every policy; it is not used."""

    def decide(self, context: base.SliceContext) -> base.SliceDecision:
        """Return no slices."""
        return base.SliceDecision()
