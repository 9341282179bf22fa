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

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nova_vhpc.scheduler.sources import nova_db

if TYPE_CHECKING:
    from nova_vhpc.scheduler.session.host_info import Record
    from nova_vhpc.scheduler.session.session import Request


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
    :ivar left: members to plan for: those that are to be placed in this
        request, and :attr:`coming`.
    :ivar coming: those for which further requests are expected: with the
        first one of a shelved cluster all others, and with one of a host
        that is down those that are to be evacuated from it, too.
    """

    def __init__(
        self,
        request: 'Request',
        records: Collection['Record'],
        landed: Sequence['Record'],
    ) -> None:
        self.running: dict[str, int] = {}
        self.left = max(0, request.members - len(landed))
        self.coming = 0
        spec_obj = request.spec_obj
        group = of(spec_obj)
        if group is None or not (group.hosts or request.moved):
            return
        members = set(group.members or ())
        others = members - {spec_obj.instance_uuid}
        # For a move Nova names those of one cell only.
        everywhere = frozenset(group.hosts or ())
        away = set(everywhere)
        # But for the worker that placed it, a host state has a member only
        # when nova-compute has started it; the group's hosts have it at once.
        seen: dict[str, str] = {}
        doubtful = False
        for record in dict.fromkeys(records):
            host = record.state.host
            if host in everywhere:
                here = members.intersection(record.state.instances)
                if here:
                    away.discard(host)
                # One that moved may still be seen where it was.
                doubtful = doubtful or any(
                    seen.get(uuid, host) != host for uuid in here
                )
                seen.update(dict.fromkeys(here & others, host))
        found = None
        # Beside one that runs, another one may just start.
        if away or doubtful or nova_db.may_tell(others - seen.keys()):
            found = nova_db.locate(members)
            if found is None:
                # Each of the other hosts has one member at least.
                self._add(away)
        if found is not None:
            self._add(
                record.state.host
                for record in landed
                # No database has it yet.
                if record.state.host in away
            )
            seen.update(found.hosts)
            # So may one whose boot has failed there.
            for uuid in found.gone | (seen.keys() - others):
                seen.pop(uuid, None)
            if request.moved:
                stranded = _stranded(spec_obj, found, seen)
                for uuid, host in stranded.items():
                    if host is None:
                        del seen[uuid]
                        self.coming += 1
                    else:
                        seen[uuid] = host
        self._add(seen.values())
        if request.moved and not self.running and found is not None:
            self.coming = len(others - found.gone)
        self.left += self.coming

    def _add(self, hosts: Iterable[str]) -> None:
        for host in hosts:
            self.running[host] = self.running.get(host, 0) + 1


def _stranded(
    spec_obj: Any, found: nova_db.Whereabouts, seen: Mapping[str, str]
) -> dict[str, str | None]:
    """Members that are on the host that one is evacuated from.

    :param found: also the host of the one that is moved.
    :param seen: hosts of the others.
    :returns: the host that each is just evacuated to, None without one.
    """
    source = found.hosts.get(spec_obj.instance_uuid)
    beside = [uuid for uuid, host in seen.items() if host == source]
    # Only a resize in place has its host among those it may go to.
    avoided = ('ignore_hosts' in spec_obj and spec_obj.ignore_hosts) or ()
    if source is None or not beside or source not in avoided:
        return {}
    cell = spec_obj.requested_destination.cell
    if not nova_db.is_down(cell, source):
        return {}
    # Who evacuates a host does not wait for each.
    landing = nova_db.landing(cell, source)
    return {uuid: landing.get(uuid) for uuid in beside}
