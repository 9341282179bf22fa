# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""What perfect co-scheduling would give each job of a placed cloud.

A cluster cannot progress faster than its member with the least fair share of
its host's CPUs lets it. Perfect co-scheduling reaches just that, with all the
noise and messages that the cluster has when it runs alone.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping

from nova_vhpc.control import fair_share
from nova_vhpc_lab.sim import host_spec
from nova_vhpc_lab.sim.cloud.spec import CloudSpec, Placement


def fair_cpus(
    spec: CloudSpec, placement: Placement, wanted_cpus: Mapping[str, float]
) -> dict[str, float]:
    """Return the CPUs that each VM is entitled to on its host.

    :param wanted_cpus: CPUs that each VM uses when it runs alone, by name.
    """
    on_host: dict[int, dict[str, fair_share.Demand]] = defaultdict(dict)
    for name, host in placement.items():
        on_host[host][name] = fair_share.Demand(
            host_spec.DEFAULT_WEIGHT, wanted_cpus[name]
        )
    fair: dict[str, float] = {}
    for host, demands in on_host.items():
        shares = fair_share.fair_cpus(
            Counter(demands.values()), spec.hosts[host].cpus
        )
        fair |= {name: shares[demand] for name, demand in demands.items()}
    return fair


def parts(
    spec: CloudSpec, placement: Placement, wanted_cpus: Mapping[str, float]
) -> dict[str, float]:
    """Return the progress of each placed job, as a part of running alone."""
    fair = fair_cpus(spec, placement, wanted_cpus)
    return {
        job.name: min(
            min(1.0, fair[name] / wanted_cpus[name]) for name in job.vm_names()
        )
        for job in spec.jobs
        if job.vm_names()[0] in placement
    }
