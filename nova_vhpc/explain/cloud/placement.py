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


"""What Placement would give one member, for ``nova-vhpc-explain``.

Asks it for the flavor's allocation candidates as nova-scheduler does.
"""

import re
import urllib.parse
from collections.abc import Mapping
from typing import Any

from nova_vhpc.clients import openstack
from nova_vhpc.explain.request_file import Flavor
from nova_vhpc.flavor import cpu_policy
from nova_vhpc.scheduler.planner.model import NO_LIMIT
from nova_vhpc.topology import model

VERSION = '1.36'

_GROUP_KEY = re.compile('(resources|trait)([a-zA-Z0-9_-]{1,64})?:(.+)')

_HYPERTHREADING = 'HW_CPU_HYPERTHREADING'
_THREAD_POLICIES = {'isolate': 'forbidden', 'require': 'required'}


def read(placement: Any, flavor: Flavor) -> 'Offers':
    """Ask Placement.

    :raises CloudError: if it does not answer, or refuses the question.
    """
    found = Offers(flavor.pinned)
    found.add(openstack.get(placement, query(flavor), VERSION))
    if cpu_policy.falls_back(flavor.extra_specs):
        asked = query(flavor, translated=False)
        found.add(openstack.get(placement, asked, VERSION), fallback=True)
    return found


def query(flavor: Flavor, translated: bool = True) -> str:
    """The question that Nova asks Placement for one member.

    :param translated: whether with ``hw:cpu_policy`` in Placement's words;
        without it, all vCPUs are asked for as shared ones.
    """
    specs = dict(flavor.extra_specs)
    traits = {}
    if translated:
        cpus = cpu_policy.resources(flavor.vcpus, specs)
        policy = _THREAD_POLICIES.get(specs.get('hw:cpu_thread_policy', ''))
        if policy:
            traits['trait:' + _HYPERTHREADING] = policy
    else:
        cpus = {'VCPU': flavor.vcpus}
    resources: dict[str, dict[str, int]] = {}
    required: dict[str, list[str]] = {}
    for key, value in {**specs, **traits}.items():
        match = _GROUP_KEY.fullmatch(key)
        if match is None:
            continue
        kind, suffix, name = match[1], match[2] or '', match[3]
        if kind == 'resources':
            # Nova passes over what is no such number.
            if re.fullmatch(r'\s*\+?\d+\s*', value):
                resources.setdefault(suffix, {})[name] = int(value)
        elif value in ('required', 'forbidden'):
            mark = '!' if value == 'forbidden' else ''
            required.setdefault(suffix, []).append(mark + name)
    own = {
        **cpus,
        'MEMORY_MB': flavor.ram_mb,
        'DISK_GB': flavor.disk_gb,
    }
    named = {name for wanted in resources.values() for name in wanted}
    for name, amount in own.items():
        if name not in named:
            resources.setdefault('', {})[name] = amount
    texts = {
        suffix: ','.join(f'{n}:{v}' for n, v in wanted.items() if v)
        for suffix, wanted in resources.items()
    }
    asked = [('resources' + s, text) for s, text in texts.items() if text]
    asked += [('required' + s, ','.join(t)) for s, t in required.items()]
    if specs.get('group_policy') in ('none', 'isolate'):
        asked.append(('group_policy', specs['group_policy']))
    return '/allocation_candidates?' + urllib.parse.urlencode(asked)


class Offers:
    """What Placement would give one member, by root provider.

    :ivar uplinks: uplinks in the candidates of each host that has any.
    :ivar asked: what one member takes of each of these hosts itself.
    :param pinned: whether all its vCPUs get a dedicated CPU each.
    """

    def __init__(self, pinned: bool) -> None:
        self.uplinks: dict[str, set[str]] = {}
        self.asked: dict[str, Mapping[str, int]] = {}
        self._pinned = pinned
        self._summaries: dict[str, Any] = {}

    def add(self, body: Mapping[str, Any], fallback: bool = False) -> None:
        """Take note of an answer.

        :param fallback: whether it is the one with which Nova finds hosts
            for pinned members that report no dedicated CPUs.
        """
        self._summaries.update(body['provider_summaries'])
        for candidate in body['allocation_requests']:
            uplinks = set()
            root = ''
            for uuid, allocation in candidate['allocations'].items():
                root = self._summaries[uuid]['root_provider_uuid']
                if model.UPLINK in allocation['resources']:
                    uplinks.add(uuid)
            if not (fallback and 'PCPU' in self._resources(root)):
                self.uplinks.setdefault(root, set()).update(uplinks)
                own = candidate['allocations'].get(root, {})
                self.asked[root] = own.get('resources', {})

    def cpus(self, root: str, total: int, used: int) -> tuple[int, int]:
        """CPUs of a host that the flavor's guests run on, and vCPUs there.

        As :func:`nova_vhpc.scheduler.hosts.state.cpus`, by what Placement has.

        :param total: of the host's CPUs, as Nova counts them.
        :param used: vCPUs of all guests.
        """
        dedicated = self._resources(root).get('PCPU')
        if dedicated is None:
            return total, used
        if self._pinned:
            return dedicated['capacity'], dedicated['used']
        # Emulator threads, which are no vCPUs, have dedicated CPUs, too.
        shared = self._resources(root).get('VCPU', {'used': 0})
        return total, max(shared['used'], used - dedicated['used'])

    def free(self, root: str) -> tuple[float, float]:
        """CPUs and RAM in MB that may still be claimed on a host."""
        resources = self._resources(root)
        cpus = resources.get(self._kind(root), {'capacity': 0, 'used': 0})
        ram = resources.get('MEMORY_MB', {'capacity': 0, 'used': 0})
        return (
            float(cpus['capacity'] - cpus['used']),
            float(ram['capacity'] - ram['used']),
        )

    def members(self, root: str, vcpus: int, ram_mb: int) -> int:
        """Members that a host has all for, but what :meth:`free` tells.

        The plan counts that itself, and says of what there is too little.

        :param vcpus: that the plan counts for one member.
        :param ram_mb: likewise. A flavor may claim more than it has.
        """
        members = NO_LIMIT
        counted = {self._kind(root): vcpus, 'MEMORY_MB': ram_mb}
        for name, amount in self.asked.get(root, {}).items():
            found = self._resources(root).get(name)
            if found is not None and amount > counted.get(name, 0):
                left = found['capacity'] - found['used']
                members = min(members, max(0, left // amount))
        return members

    def _kind(self, root: str) -> str:
        """The resource class of the CPUs that the plan counts."""
        pinned = self._pinned and 'PCPU' in self._resources(root)
        return 'PCPU' if pinned else 'VCPU'

    def _resources(self, root: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._summaries.get(root, {}).get(
            'resources', {}
        )
        return found
