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

"""In which order a guest has its NICs.

Nova groups a server's addresses by the network's name: networks in the
order of their first NIC, and NICs in order within each. Of a guest with
NICs A, B and C on the networks 1, 2 and 1 it tells A, C, B. Its list of
ports is in Neutron's order, which is none. The diagnostics have the NICs of
the running domain in the domain's order, by which the agent binds uplinks.
"""

import concurrent.futures
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

from keystoneauth1 import adapter
from keystoneauth1 import exceptions as ks_exceptions
from oslo_log import log as logging

LOG = logging.getLogger(__name__)

MAC = 'OS-EXT-IPS-MAC:mac_addr'

_MICROVERSION = '2.48'
# nova-api asks the compute host: neither a host that is away nor a whole
# cluster of many members may hold up the guest that asks (Nova waits 5 s).
_TIMEOUT_S = 2.0
_AT_ONCE = 8

# For a refusal too. NICs may be plugged while the guest runs.
_KEPT_S = 60.0

Order = tuple[str, ...]
"""MAC addresses in the guest's order; empty where it is not known."""


def is_told(addresses: Mapping[str, list[dict[str, Any]]]) -> bool:
    """Whether the addresses alone tell the order.

    They do unless one network's NICs may lie behind those of a later one.

    :param addresses: of a server, as Nova's API has them.
    """
    groups = [
        {entry.get(MAC) for entry in entries} for entries in addresses.values()
    ]
    return all(len(group) <= 1 for group in groups[:-1])


class NicOrders:
    """Asks for the orders that addresses do not tell, and keeps them.

    :param client: of the compute service, with the right to read
        ``os-server-diagnostics``.
    """

    def __init__(self, client: adapter.Adapter) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, Order]] = {}
        self._complained = False

    def find(self, servers: Iterable[Mapping[str, Any]]) -> dict[str, Order]:
        """Orders by server uuid, for those that had to be asked for.

        Of a server that does not run there is nothing to ask.

        :param servers: from Nova's detail view.
        """
        wanted = [
            server['id']
            for server in servers
            if not is_told(server.get('addresses') or {})
            and server.get('status') == 'ACTIVE'
        ]
        if not wanted:
            return {}
        now = time.monotonic()
        with self._lock:
            self._known = {
                uuid: entry
                for uuid, entry in self._known.items()
                if entry[0] > now
            }
            known = dict(self._known)
        missing = [uuid for uuid in wanted if uuid not in known]
        if missing:
            with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
                answers = list(pool.map(self._ask, missing))
            until = time.monotonic() + _KEPT_S
            asked = {
                uuid: (until, order)
                for uuid, order in zip(missing, answers, strict=True)
            }
            known |= asked
            with self._lock:
                self._known |= asked
        return {uuid: known[uuid][1] for uuid in wanted}

    def _ask(self, uuid: str) -> Order:
        try:
            response = self._client.get(
                f'/servers/{uuid}/diagnostics',
                microversion=_MICROVERSION,
                raise_exc=False,
                timeout=_TIMEOUT_S,
            )
            if response.status_code == 200:
                return tuple(
                    (nic['mac_address'] or '').lower()
                    for nic in response.json()['nic_details']
                )
            reason = f'{response.status_code}: {response.text[:200]}'
        except ks_exceptions.ClientException as error:
            reason = str(error)
        if not self._complained:
            self._complained = True
            LOG.warning(
                'Nova does not tell the diagnostics of server %s, so its NICs '
                'on one network are taken for neighbours; more of this is '
                'passed over silently. Does the policy '
                'os_compute_api:os-server-diagnostics allow it to the user '
                'of [vhpc_nova]? %s',
                uuid,
                reason,
            )
        return ()
