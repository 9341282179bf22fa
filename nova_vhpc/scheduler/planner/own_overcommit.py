# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Keep a cluster from being over-committed against itself.

Members that share CPUs with each other take turns, so each of them waits
for members that cannot run at the same time. Sharing CPUs with other guests
costs far less: the agent's windows let all members of a cluster run at once.
"""

from nova_vhpc.scheduler.planner.objective import Counts, Objective


def limited(
    objective: Objective, capacity: list[int], ratio: float
) -> list[int]:
    """Return capacities under a limit on the cluster's own vCPUs.

    :param capacity: number of new members that each host may get.
    :param ratio: most vCPUs of the cluster, running members included, per
        host CPU.
    """
    request = objective.request
    vcpus = request.vcpus
    # A limit above 1.0 on all vCPUs is needed to exceed one on own vCPUs.
    if request.max_overcommit <= ratio:
        return capacity
    fits = {
        cpus: int((cpus * ratio + 1e-9) // vcpus)
        for cpus in {host.total_cpus for host in objective.hosts}
    }
    limited_capacity = [
        free if free < fits[host.total_cpus] else fits[host.total_cpus]
        for free, host in zip(capacity, objective.hosts, strict=True)
    ]
    for index, here in objective.existing.items():
        host = objective.hosts[index]
        # Members of other flavors may have fewer vCPUs.
        own = min(here * vcpus, host.used_vcpus)
        free = int((host.total_cpus * ratio - own + 1e-9) // vcpus)
        limited_capacity[index] = max(0, min(capacity[index], free))
    return limited_capacity


def most_own(objective: Objective, counts: Counts) -> float:
    """Return the most vCPUs of the cluster per CPU on a host of a placement.

    Only hosts that get new members count; 0.0 without any.
    """
    vcpus = objective.request.vcpus
    most = 0.0
    for index, new in counts.items():
        if new:
            host = objective.hosts[index]
            running = objective.existing.get(index, 0) * vcpus
            own = new * vcpus + min(running, host.used_vcpus)
            most = max(most, own / max(1, host.total_cpus))
    return most
