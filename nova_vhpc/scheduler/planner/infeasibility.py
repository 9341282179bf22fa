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


"""Explain to an operator why a virtual cluster does not fit."""

from nova_vhpc.scheduler.planner.group_policies import limit_of
from nova_vhpc.scheduler.planner.host_groups import capacities, limited
from nova_vhpc.scheduler.planner.model import Policy
from nova_vhpc.scheduler.planner.objective import Objective


def why_not(objective: Objective) -> str:
    """Return a sentence that says what the hosts are short of.

    It counts the members that fit by CPUs, by RAM and by uplinks, and names
    a hard policy of the server group with what that policy leaves.
    """
    request = objective.request
    capacity = capacities(request, objective)
    most = request.members
    hosts = request.hosts
    by_cpus = by_ram = by_uplinks = 0
    for host in hosts:
        limit = (host.total_cpus - request.spare_cpus) * request.max_overcommit
        cpus = min(limit - host.used_vcpus + 1e-9, host.free_cpus)
        by_cpus += max(0, min(most, int(cpus // request.vcpus)))
        ram = host.free_ram_mb // (request.ram_mb or 1)
        by_ram += max(0, int(min(most, ram)))
        by_uplinks += max(0, min(most, host.slots))
    ratio = request.max_overcommit
    overcommit = f'{ratio:g}' if ratio < 1000 else 'without limit'
    text = (
        f'{most} members of {request.vcpus} vCPUs and {request.ram_mb} MB '
        f'need {most} places; {len(hosts)} hosts have {sum(capacity)} '
        f'(CPUs give {by_cpus} with {request.spare_cpus} spare per host and '
        f'over-commit {overcommit}, RAM {by_ram}, '
        f'uplinks, devices and disk {by_uplinks})'
    )
    if request.policy == Policy.AFFINITY:
        if objective.existing:
            return text + '; affinity ties them to the hosts of the others'
        largest = max(capacity, default=0)
        return text + f'; affinity wants one host, the best has {largest}'
    if request.policy == Policy.ANTI_AFFINITY:
        each = limit_of(request)
        places = sum(limited(objective, capacity, each))
        return text + f'; anti-affinity at {each} per host leaves {places}'
    return text
