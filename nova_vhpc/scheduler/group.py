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

"""The server group of one request: who runs where, and who is to be placed."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from nova_vhpc.scheduler import whereabouts

if TYPE_CHECKING:
    from nova_vhpc.scheduler.request import Record, Request


def of(spec_obj: Any) -> Any:
    """The request's server group, or None.

    Nova's own requests say None where there is none; those that were made
    by hand or by an old release may not say it at all.
    """
    return spec_obj.instance_group if 'instance_group' in spec_obj else None


class Members:
    """The members of a request's server group before its first plan.

    Peers run also on hosts that are not among the request's: Placement
    offers no host that is full.

    :param records: the hosts that may take the next member.
    :param landed: hosts on which members of this very request landed
        before the first plan, one entry per member.
    :ivar running: members by host name, the one to be placed left out.
    :ivar left: members that are to be placed in this request.
    """

    def __init__(
        self,
        request: 'Request',
        records: Collection['Record'],
        landed: Sequence['Record'],
    ) -> None:
        self.running: dict[str, int] = {}
        self.left = request.members - len(landed)
        spec_obj = request.spec_obj
        group = of(spec_obj)
        if group is None or not group.hosts:
            return
        members = set(group.members or ())
        others = members - {spec_obj.instance_uuid}
        everywhere = frozenset(group.hosts)
        away = set(everywhere)
        # But for the worker that placed it, a host state has a member only
        # when nova-compute has started it; the group's hosts have it at once.
        offered = [
            record
            for record in set(records)
            if record.state.host in away
            and not members.isdisjoint(record.state.instances)
        ]
        away.difference_update(record.state.host for record in offered)
        seen: set[str] = set()
        for record in offered:
            instances = record.state.instances
            seen.update(members.intersection(instances))
            self._add(record.state.host, len(others.intersection(instances)))
        found = None
        # Beside one that runs, another one may just start.
        starting = others - seen
        if away or request.members > 1 or whereabouts.may_tell(starting):
            found = whereabouts.locate(members)
        if found is None:
            # Each of the other hosts has one member at least.
            for host in away:
                self._add(host, 1)
            if len(members) - len(seen) - len(away) < self.left:
                self.left = 1
            return
        for uuid in starting:
            if found.hosts.get(uuid) in everywhere:
                self._add(found.hosts[uuid], 1)
        for record in landed:
            if record.state.host in away:
                # No database has it yet.
                self._add(record.state.host, 1)
        if spec_obj.instance_uuid not in found.booting:
            # A member is moved. num_instances is that of its first boot.
            self.left = max(0, 1 - len(landed))

    def _add(self, host: str, members: int) -> None:
        if members:
            self.running[host] = self.running.get(host, 0) + members
