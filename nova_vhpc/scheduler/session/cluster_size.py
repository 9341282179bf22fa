# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""How many members a virtual cluster will have, as far as a request says."""

from typing import Any

from oslo_log import log as logging

from nova_vhpc.flavor import extra_specs
from nova_vhpc.scheduler.session import server_group

LOG = logging.getLogger(__name__)

HINT = extra_specs.MEMBERS_HINT
"""Scheduler hint with the size of the whole virtual cluster."""

_KEY = extra_specs.BY_NAME['members']

_MOST_CHARACTERS = 40
"""Most characters of a wrong hint that are logged; tenants write hints."""


def of(spec_obj: Any, specs: extra_specs.ExtraSpecs) -> int:
    """Return how many members the virtual cluster will have in the end.

    The hint :data:`HINT` comes before the flavor's ``vhpc:members``. Nova's
    API passes every hint through: a wrong one is ignored with a warning, and
    so is one of a server without a server group.

    :param spec_obj: Nova's RequestSpec.
    :param specs: the flavor's ``vhpc:*`` extra specs.
    :returns: 0 if neither hint nor flavor says.
    """
    hint = spec_obj.get_scheduler_hint(HINT)
    if server_group.of(spec_obj) is None:
        if hint is not None:
            LOG.warning(
                'Ignoring scheduler hint %s: the server is in no server '
                'group, so the other members are unknown',
                HINT,
                instance_uuid=spec_obj.instance_uuid,
            )
        return 0
    if hint is not None:
        try:
            return int(_KEY.parse(hint))
        except ValueError:
            text = str(hint)
            LOG.warning(
                'Ignoring scheduler hint %s=%r: not %s',
                HINT,
                text[:_MOST_CHARACTERS],
                _KEY.allowed,
                instance_uuid=spec_obj.instance_uuid,
            )
    return specs.members or 0
