# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``[neutron]``: how the agent reaches Neutron.

Group and options are those of nova-compute, so that the agent can read them
from nova.conf unchanged.
"""

from typing import Any

from oslo_config import cfg

from nova_vhpc.conf import keystone

GROUP = 'neutron'


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register keystoneauth's session, auth and adapter options."""
    keystone.register_opts(conf, GROUP, 'network')


def list_opts() -> list[tuple[Any, list[Any]]]:
    """Return the group and its options, for the sample file."""
    return [(GROUP, keystone.opts())]
