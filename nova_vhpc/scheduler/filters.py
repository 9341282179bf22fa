# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The filter that nova-scheduler loads.

``[filter_scheduler] available_filters`` gets
``nova_vhpc.scheduler.filters.VirtualClusterFilter`` beside Nova's own;
``enabled_filters`` gets ``VirtualClusterFilter``, best as the last one,
since it puts the allocation candidates that the others left into order.
"""

from collections.abc import Iterable
from typing import Any

from nova import conf as nova_conf
from nova.scheduler import filters, utils
from oslo_log import log as logging

from nova_vhpc.conf import scheduler as scheduler_conf
from nova_vhpc.flavor import extra_specs, validation
from nova_vhpc.scheduler.session.session import SchedulingSession
from nova_vhpc.scheduler.sources import cost_table_file

LOG = logging.getLogger(__name__)

CONF = nova_conf.CONF


class VirtualClusterFilter(filters.BaseHostFilter):
    """Keeps the hosts that can serve a member of a virtual cluster.

    Requests whose flavor carries no ``vhpc:`` extra specs go through
    untouched, and so do rebuilds, which stay on their host.
    """

    RUN_ON_REBUILD = False

    def __init__(self) -> None:
        super().__init__()
        scheduler_conf.register_opts(CONF)
        scheduler_conf.check(CONF)
        cost_table_file.read(CONF.vhpc_scheduler.cost_table)
        subset_size = CONF.filter_scheduler.host_subset_size
        if subset_size > 1:
            LOG.warning(
                '[filter_scheduler] host_subset_size is %d: Nova takes one of '
                'the %d best entries of the list of hosts by chance. Hosts of '
                'the plan of a virtual cluster are listed that often, so its '
                'members follow the plan; members without a plan are spread '
                'by chance. Set it to 1',
                subset_size,
                subset_size,
            )
        # Ids of the flavors whose invalid extra specs were logged.
        self._logged_flavors: set[str] = set()

    def filter_all(
        self, filter_obj_list: Iterable[Any], spec_obj: Any
    ) -> Iterable[Any]:
        """Return the hosts that pass; some twice (see ``claim_attempts``)."""
        flavor = spec_obj.flavor
        if 'extra_specs' not in flavor or not extra_specs.requested(
            flavor.extra_specs
        ):
            return filter_obj_list
        if utils.request_is_rebuild(spec_obj):
            return filter_obj_list
        states = list(filter_obj_list)
        if not states:
            return states
        session = SchedulingSession.of_host_state(states[0], spec_obj)
        if session is None:
            session = SchedulingSession(spec_obj, CONF)
            self._log_problems(flavor, session)
        return session.filter(states)

    def host_passes(self, host_state: Any, filter_properties: Any) -> bool:
        """Return whether one host passes; Nova calls :meth:`filter_all`."""
        return bool(list(self.filter_all([host_state], filter_properties)))

    def _log_problems(self, flavor: Any, session: SchedulingSession) -> None:
        if flavor.flavorid in self._logged_flavors:
            return
        problems = validation.problems(flavor.extra_specs)
        if not problems:
            return
        self._logged_flavors.add(flavor.flavorid)
        LOG.warning(
            'Flavor %s has extra specs that are invalid or without effect%s: '
            '%s',
            flavor.name,
            '; its servers count as vhpc:workload=general'
            if session.requirements.specs.errors
            else '',
            '; '.join(problems),
        )
