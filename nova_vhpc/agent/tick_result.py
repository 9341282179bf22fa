# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The result of a tick, which is written to VMs, shown and counted."""

import dataclasses

from nova_vhpc.control import model


@dataclasses.dataclass(frozen=True, slots=True)
class TickResult:
    """What one tick saw and decided.

    :ivar view: the host as the tick saw it.
    :ivar plan: what the controller decided.
    :ivar took_us: duration of the tick, in microseconds.
    """

    view: model.HostView
    plan: model.Plan
    took_us: float
