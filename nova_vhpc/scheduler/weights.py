# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The weigher that nova-scheduler loads.

``[filter_scheduler] weight_classes`` gets
``nova_vhpc.scheduler.weights.VirtualClusterWeigher`` beside Nova's own.
"""

import types
from collections.abc import Sequence
from typing import Any

from nova import conf as nova_conf
from nova.scheduler import utils, weights

from nova_vhpc.conf import scheduler as scheduler_conf
from nova_vhpc.flavor import extra_specs
from nova_vhpc.scheduler.session.session import SchedulingSession
from nova_vhpc.scheduler.sources import cost_table_file

CONF = nova_conf.CONF


class VirtualClusterWeigher(weights.BaseHostWeigher):
    """Weighs hosts by the plan of the virtual cluster.

    Raw weights are absolute (1.0 is the plan's first host) and not
    stretched to the extremes of the list: between hosts that cost the
    same, Nova's other weighers decide.
    """

    minval = 0.0
    maxval = 1.0

    def __init__(self) -> None:
        super().__init__()
        scheduler_conf.register_opts(CONF)
        scheduler_conf.check(CONF)
        cost_table_file.read(CONF.vhpc_scheduler.cost_table)

    def weight_multiplier(self, host_state: Any) -> float:
        """Return a host's multiplier, 0.0 without a virtual cluster."""
        try:
            # With a multiplier of 0.0, all raw weights are 0.0 but for the
            # penalty of a duplicate entry.
            multiplier: float = host_state._vhpc.multiplier
            return multiplier or 1.0
        except AttributeError:
            # Without a virtual cluster, all raw weights are 0.0.
            return 0.0

    def weigh_objects(
        self, weighed_obj_list: Sequence[Any], weight_properties: Any
    ) -> list[float]:
        """Return the raw weights of all hosts for the next member."""
        spec_obj = weight_properties
        flavor = spec_obj.flavor
        if (
            'extra_specs' not in flavor
            or not extra_specs.requested(flavor.extra_specs)
            or not weighed_obj_list
            or utils.request_is_rebuild(spec_obj)
        ):
            return [0.0] * len(weighed_obj_list)
        session = SchedulingSession.of_host_state(
            weighed_obj_list[0].obj, spec_obj
        )
        if session is None:
            # Forced hosts pass no filter.
            session = SchedulingSession(spec_obj, CONF)
        return session.weigh([item.obj for item in weighed_obj_list])

    def _weigh_object(self, obj: Any, weight_properties: Any) -> float:
        return self.weigh_objects(
            [types.SimpleNamespace(obj=obj)], weight_properties
        )[0]
