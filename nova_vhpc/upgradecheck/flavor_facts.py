# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Read from Nova the flavors that the upgrade checks look at."""

import logging

from keystoneauth1 import adapter
from oslo_config import cfg

from nova_vhpc.clients import credentials
from nova_vhpc.conf import placement as placement_conf
from nova_vhpc.flavor import validation

LOG = logging.getLogger(__name__)

_MICROVERSION = '2.61'
"""First with which a list of flavors has their extra specs."""


def problems(conf: cfg.ConfigOpts) -> dict[str, list[str]] | None:
    """Return the problems of each flavor that has some, by name.

    The credentials are those of ``[placement]``, which nova.conf has: nothing
    else is configured on each host.

    :returns: None if Nova did not answer.
    """
    group = placement_conf.GROUP
    try:
        placement = credentials.adapter(conf, group)
        return validation.problems_of_all(
            flavors(
                adapter.Adapter(
                    placement.session,
                    service_type='compute',
                    interface=placement.interface,
                    region_name=placement.region_name,
                    default_microversion=_MICROVERSION,
                )
            )
        )
    except Exception as error:
        # keystoneauth raises many kinds, and answers may be a proxy's.
        LOG.debug('Nova cannot be asked: %s', error)
        return None


def flavors(client: adapter.Adapter) -> dict[str, dict[str, str]]:
    """Return the extra specs of all flavors, by name."""
    found = {}
    params = {'is_public': 'None'}
    # Nova answers [api]max_limit flavors at a time.
    while page := client.get('/flavors/detail', params=params).json()[
        'flavors'
    ]:
        found.update({one['name']: one['extra_specs'] for one in page})
        params['marker'] = page[-1]['id']
    return found
