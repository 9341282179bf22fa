# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What guests of a cluster learn from vendordata. Pure.

The bench starts programs with the hostfiles, flags, routes and the wrapper
that a tenant gets, so that it measures what a tenant would.
"""

import ipaddress
import json
import uuid
from typing import Any

from nova_vhpc.vendordata import answer, model
from nova_vhpc_lab.bench.network import layout as layouts


def answers(
    layout: layouts.Layout, configuration: str
) -> tuple[dict[str, Any], ...]:
    """Return the vendordata of all guests, in rank order."""
    # Ranks of a hybrid program are not bound to CPUs. Here guests have no
    # CPUs of their own, and bound ranks would all be on the first one.
    members = tuple(
        model.Member(
            uuid=str(uuid.UUID(int=rank + 1)),
            name=guest.name,
            vcpus=1,
            host=guest.host,
            nics=tuple(
                model.Nic(
                    mac=f'02:00:00:00:{nic.network:02x}:{rank:02x}',
                    addresses=(ipaddress.ip_address(nic.address),),
                )
                for nic in guest.nics
            ),
            network=configuration,
            paradigm='hybrid',
        )
        for rank, guest in enumerate(layout.guests)
    )
    cluster = model.Cluster(str(uuid.UUID(int=0)), 'bench', members)
    made = answer.Answers(cluster)
    return tuple(json.loads(made.of(member.uuid)) for member in members)
