# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""What guests of a cluster learn from vendordata. Pure.

The bench starts programs with the hostfiles, flags, routes and the wrapper
that a tenant gets, so that it measures what a tenant would.
"""

import ipaddress
import uuid
from typing import Any

from nova_vhpc.bench.network import layout as layouts
from nova_vhpc.vendordata import answer, model


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
    return tuple(answer.answer(cluster, member.uuid) for member in members)
