# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Check whether a flavor's extra specs fit together.

:func:`problems` finds what the API, the filter or Placement refuses, and
contradictions. :func:`advice` finds what works but is probably a mistake.
"""

from collections.abc import Mapping

from nova_vhpc.flavor import cpu_policy, extra_specs, pci_aliases
from nova_vhpc.flavor.request_groups import (
    ALIAS,
    BRIDGE_TRAITS,
    GROUP_POLICIES,
    GROUP_POLICY,
    PAIR,
    flaw,
    is_ours,
    port_recipe,
    recipe,
    requested_uplinks,
    suffixes,
)
from nova_vhpc.topology import model


def problems(
    specs: Mapping[str, str],
    *,
    sriov_ports: bool | None = None,
    ports: bool | None = None,
) -> list[str]:
    """Return what does not fit together, one sentence for each problem.

    A request group is a problem only if the filter or Placement refuses it;
    :func:`advice` covers what they accept.

    :param specs: all extra specs of the flavor.
    :param sriov_ports: whether an ``exported`` flavor gets its devices from
        ports; None if unknown, as when a flavor is only shown.
    :param ports: whether uplinks of bridges come with the servers' ports;
        None if unknown.
    """
    parsed = extra_specs.parse(specs)
    found = list(parsed.errors)
    network = parsed.network
    found += _request_group_problems(specs, network, ports is not False)
    if network == 'exported' and ALIAS not in specs and sriov_ports is False:
        found.append(
            f'vhpc:network=exported without {ALIAS}: name the alias, or '
            'boot with SR-IOV ports'
        )
    if network == 'exported':
        found += _exported_problems(specs, parsed)
    if network is None:
        found += [
            f'{key} without vhpc:network means nothing'
            for key in ('vhpc:uplink_nic',)
            if key in specs
        ]
    if parsed.workload == 'parallel' and parsed.time_slice_us is not None:
        found.append(
            'vhpc:time_slice_us is for VMs that are not parallel '
            "(Algorithm 2's SPECIFIED); the time slice of parallel ones is "
            'controlled: take it out or use --workload latency or general'
        )
    dedicated_by = cpu_policy.dedicated_by(specs)
    if dedicated_by and parsed.io_pool == 'always':
        found.append(
            'vhpc:io_pool=always asks for re-pinning, but flavors with '
            f'{dedicated_by} are never re-pinned'
        )
    return found


def problems_of_all(
    flavors: Mapping[str, Mapping[str, str]],
) -> dict[str, list[str]]:
    """Return the problems of each flavor that has some, by name.

    Flavors without a ``vhpc:`` key and without a claim on an uplink are not
    ours to judge.

    :param flavors: all extra specs of each flavor, by its name.
    """
    found = {}
    for name, specs in sorted(flavors.items()):
        is_concerned = requested_uplinks(specs) or any(
            key.startswith(extra_specs.PREFIX) for key in specs
        )
        if is_concerned and (sentences := problems(specs)):
            found[name] = sentences
    return found


def advice(specs: Mapping[str, str]) -> list[str]:
    """Return what works but is probably a mistake, one sentence for each."""
    parsed = extra_specs.parse(specs)
    found = _request_group_advice(specs, parsed.network)
    overcommit = parsed.max_overcommit
    if (
        parsed.paradigm in ('openmp', 'hybrid')
        and overcommit is not None
        and overcommit > 1
    ):
        found.append(
            f'{parsed.paradigm} programs lose steeply above one vCPU per '
            "CPU (NPC'09 section 4.2); vhpc:max_overcommit is "
            f'{overcommit:g}'
        )
    if (
        parsed.network not in (None, 'exported')
        and parsed.spare_cpus == 0
        and parsed.workload == 'parallel'
    ):
        found.append(
            'without a spare CPU for the packet work, programs lose 30-35% '
            "(HPCVirt'09 section 6.4); vhpc:spare_cpus is 0"
        )
    if parsed.wait == 'active' and not cpu_policy.dedicated_by(specs):
        found.append(
            'vhpc:wait=active tells programs to spin while they wait: on CPUs '
            'that others use, they are faster with auto or passive'
        )
    return found


def _exported_problems(
    specs: Mapping[str, str], parsed: extra_specs.ExtraSpecs
) -> list[str]:
    """Return what an ``exported`` flavor's PCI devices contradict."""
    found = pci_aliases.problems(specs)
    if parsed.uplink_nic is not None:
        found.append(
            'vhpc:uplink_nic chooses the NIC that is plugged into a '
            'bridge; exported has none'
        )
    if parsed.min_link_mbps:
        found.append(
            'vhpc:min_link_mbps is compared with uplinks of bridges; the '
            'link speed of PCI devices (exported) is not published: remove '
            'it, and choose fast devices by their alias'
        )
    return found


def _request_group_problems(
    specs: Mapping[str, str], network: str | None, ports: bool
) -> list[str]:
    """Return the problems of request groups that no host can serve."""
    found = []
    uplinks = requested_uplinks(specs)
    refused = flaw(
        network, uplinks, devices=1, ports=len(PAIR) if ports else 0
    )
    if refused:
        found = _departures(specs, network) or [refused]
    else:
        # Placement would offer such uplinks, and the filter reject them all.
        right = BRIDGE_TRAITS.get(network or '', ())
        found = [
            f'{key} does not belong to vhpc:network={network}'
            for key in sorted(filter(is_ours, specs))
            for trait in {model.TRAIT_SHARED, model.TRAIT_SEPARATE}
            if right
            and trait not in right
            and key.endswith(f':{trait}')
            and specs[key] == 'required'
        ]
    groups = suffixes(specs)
    found += [
        f'{suffix} asks for a bridge that is both shared and separate'
        for suffix in sorted(groups)
        if network is None
        and all(
            specs.get(f'trait{suffix}:{trait}') == 'required'
            for trait in (model.TRAIT_SHARED, model.TRAIT_SEPARATE)
        )
    ]
    found += [
        f'{key} without resources{suffix}: Placement would refuse it'
        for key in sorted(filter(is_ours, specs))
        if key.startswith('trait')
        and (suffix := key.partition(':')[0].removeprefix('trait'))
        not in groups
    ]
    if len(groups) > 1 and specs.get(GROUP_POLICY) not in GROUP_POLICIES:
        found.append(
            f'several request groups without {GROUP_POLICY}'
            f'={" or ".join(GROUP_POLICIES)}: Placement would refuse them'
        )
    return found


def _request_group_advice(
    specs: Mapping[str, str], network: str | None
) -> list[str]:
    """Return how request groups that work differ from the recipe."""
    uplinks = requested_uplinks(specs)
    if flaw(network, uplinks, devices=1, ports=len(PAIR)):
        return []
    if network is None:
        return (
            [
                'a request group asks for an uplink without vhpc:network: '
                'one on any bridge will do, and no NIC is plugged into it'
            ]
            if uplinks
            else []
        )
    if uplinks == 0 and BRIDGE_TRAITS[network]:
        return [_without_group(network)]
    found = _departures(specs, network)
    if (
        len(BRIDGE_TRAITS[network]) > 1
        and specs.get(GROUP_POLICY) == 'isolate'
    ):
        found.append(
            f'{GROUP_POLICY}=isolate also keeps the devices of {ALIAS} on '
            'different physical functions (with [filter_scheduler] '
            'pci_in_placement), and ports with minimum bandwidth on '
            f'different NICs; for vhpc:network={network}, none is enough: '
            f'openstack flavor set --property {GROUP_POLICY}=none'
        )
    return found


def _without_group(network: str) -> str:
    """Return what a flavor means that leaves the uplinks to the ports."""
    start = (
        f'vhpc:network={network} without a request group is for servers '
        f'whose ports bring the uplinks: {port_recipe(network)}'
    )
    if model.TRAIT_SEPARATE in BRIDGE_TRAITS[network]:
        return (
            f'{start}. Servers without such a port find no host; set '
            f'--network {network} writes the group instead'
        )
    return (
        f'{start}. For servers without such ports, bridges and links are '
        'checked, but members of an uplink are not counted, and no NIC is '
        f'plugged into it; set --network {network} writes the group instead'
    )


def _departures(specs: Mapping[str, str], network: str | None) -> list[str]:
    """Return all differences between request groups and the recipe."""
    wanted = recipe(network)
    found = [
        f'vhpc:network={network} needs {key}={value}, the flavor has '
        f'{specs.get(key, "nothing")}'
        for key, value in wanted.items()
        if specs.get(key) != value
        and not (key == GROUP_POLICY and specs.get(key) in GROUP_POLICIES)
    ]
    physnets = model.physnet_trait('')
    for key in sorted(specs):
        if not is_ours(key) or key.startswith(extra_specs.PREFIX):
            continue
        if key not in wanted and f':{physnets}' not in key:
            found.append(f'{key} does not belong to vhpc:network={network}')
    return found
