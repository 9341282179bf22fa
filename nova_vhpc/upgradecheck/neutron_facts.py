# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Read from Neutron what the upgrade checks need to know of networks."""

import logging

from keystoneauth1 import adapter
from oslo_config import cfg

from nova_vhpc.clients import credentials, neutron
from nova_vhpc.conf import placement as placement_conf
from nova_vhpc.topology import neutron_segments

LOG = logging.getLogger(__name__)


def problems(conf: cfg.ConfigOpts) -> list[str] | None:
    """Return a sentence for each network whose packets go astray.

    The credentials are those of ``[placement]``, which nova.conf has: nothing
    else is configured on each host.

    :returns: None if Neutron did not answer, as if there is none.
    """
    group = placement_conf.GROUP
    try:
        placement = credentials.adapter(conf, group)
        return _problems(
            adapter.Adapter(
                placement.session,
                service_type='network',
                interface=placement.interface,
                region_name=placement.region_name,
            )
        )
    except Exception as error:
        # keystoneauth raises many kinds, and answers may be a proxy's.
        LOG.debug('Neutron cannot be asked: %s', error)
        return None


def _problems(client: adapter.Adapter) -> list[str]:
    agents = neutron.get(client, neutron_segments.AGENTS)['agents']
    networks = neutron.get(client, neutron_segments.NETWORKS)['networks']
    return neutron_segments.problems(
        networks, neutron_segments.mappings(agents)
    )
