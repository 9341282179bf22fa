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

"""What is known of one host in one request, kept on its host state."""

from typing import TYPE_CHECKING, Any

from nova_vhpc.scheduler.hosts import requirements
from nova_vhpc.scheduler.session import candidates

if TYPE_CHECKING:
    from nova_vhpc.scheduler.session.session import Request

ATTRIBUTE = '_vhpc'
"""Where a host state carries its :class:`Record`."""


class Record:
    """What is known of one host in one request.

    :ivar seen: ``HostState.num_instances`` when it was last looked at; it
        grows when a member lands.
    :ivar landed: members of the request that have landed on it.
    :ivar run: the filter run that has last seen the host.
    :ivar weight: raw weight for the next member.
    :ivar multiplier: of the raw weight; above 0.0 the host is planned.
    :ivar candidates: for the next member, as they were put into order; other
        filters may have replaced them on the host state.
    """

    __slots__ = (
        'candidates',
        'landed',
        'ledger',
        'multiplier',
        'name',
        'request',
        'run',
        'seen',
        'state',
        'verdict',
        'weigh_run',
        'weight',
    )

    def __init__(
        self,
        request: 'Request',
        state: Any,
        verdict: requirements.Verdict,
    ) -> None:
        self.request = request
        self.state = state
        self.verdict = verdict
        self.seen: int = state.num_instances
        self.landed = 0
        self.run = 0
        self.weigh_run = 0
        self.weight = 0.0
        self.multiplier = 1.0
        self.name = ''
        self.ledger: candidates.Ledger | None = None
        self.candidates: candidates.Candidates | None = None
