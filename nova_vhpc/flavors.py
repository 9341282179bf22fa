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


"""The extra specs that a flavor of each network configuration carries.

Pure. A flavor must say the same thing twice: ``vhpc:*`` for the filter and
the agent, and request groups (``resources_uplink:...``) for Placement, so
that an uplink is never given out twice. :func:`recipe` writes both,
:func:`change` turns a flavor into what the recipe says, :func:`problems`
finds what does not fit together.
"""

import dataclasses
from collections.abc import Iterable, Mapping

from nova_vhpc import extra_specs
from nova_vhpc.topology import model

ALIAS = 'pci_passthrough:alias'
GROUP_POLICY = 'group_policy'
PAIR = (model.RESOURCE_GROUP + '1', model.RESOURCE_GROUP + '2')
"""Suffixes of the two request groups of ``multiple-shared``."""

BRIDGE_TRAITS: Mapping[str, tuple[str, ...]] = {
    'exported': (),
    'shared': (model.TRAIT_SHARED,),
    'multiple-shared': (model.TRAIT_SHARED, model.TRAIT_SHARED),
    'separate': (model.TRAIT_SEPARATE,),
    'shared-separate': (model.TRAIT_SEPARATE,),
}
"""Trait of the bridge behind each uplink that a member claims."""

_PREFIXES = ('resources_', 'trait_')


class RecipeError(ValueError):
    """A combination that no host could serve, or that means nothing."""


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """What to do to a flavor's extra specs.

    :ivar write: keys to set, with their values.
    :ivar remove: keys to delete.
    :ivar before: all extra specs as they were.
    """

    write: Mapping[str, str]
    remove: tuple[str, ...]
    before: Mapping[str, str]

    @property
    def after(self) -> dict[str, str]:
        """All extra specs as they will be."""
        kept = {
            key: value
            for key, value in self.before.items()
            if key not in self.remove
        }
        return {**kept, **self.write}

    def __bool__(self) -> bool:
        return bool(self.write or self.remove)


def recipe(
    options: Mapping[str, str],
    *,
    physnet: str | None = None,
    alias: str | None = None,
    sriov_ports: bool = False,
) -> dict[str, str]:
    """Extra specs of a flavor.

    :param options: ``vhpc:*`` values by key without the prefix, such as
        ``{'network': 'shared-separate', 'workload': 'parallel'}``.
    :param physnet: Neutron physical network that the uplink must be on.
    :param alias: for ``exported``, ``NAME`` or ``NAME:COUNT`` of an alias
        in Nova's ``[pci] alias``.
    :param sriov_ports: for ``exported``, the devices come with the
        server's Neutron ports (``vnic_type`` direct) and not by alias.
    :raises RecipeError: naming what does not fit and what to do.
    """
    specs = {}
    for name, value in options.items():
        key = extra_specs.BY_NAME.get(name)
        if key is None:
            raise RecipeError(
                f'{extra_specs.PREFIX}{name}: no such extra spec; known '
                'are: ' + ', '.join(extra_specs.BY_NAME)
            )
        try:
            key.parse(value)
        except ValueError as error:
            raise RecipeError(str(error)) from None
        specs[key.full_name] = str(value).strip()
    network = options.get('network')
    if network == 'exported':
        if bool(alias) == sriov_ports:
            raise RecipeError(
                'exported takes its devices either by a PCI alias (give '
                '--alias NAME) or by Neutron ports (give --sriov-ports)'
            )
    elif alias or sriov_ports:
        raise RecipeError(
            '--alias and --sriov-ports only go with --network exported; '
            f'{network or "no network configuration"} plugs guests into '
            'bridges'
        )
    if physnet is not None and not BRIDGE_TRAITS.get(network or '', ()):
        raise RecipeError(
            '--physnet chooses among uplinks with a bridge: give a '
            '--network other than exported'
        )
    specs.update(_claims(network, physnet))
    if alias:
        specs[ALIAS] = alias if ':' in alias else f'{alias}:1'
    found = problems(specs, sriov_ports=sriov_ports)
    if found:
        raise RecipeError('; '.join(found))
    return specs


def change(
    current: Mapping[str, str],
    wanted: Mapping[str, str],
    *,
    sriov_ports: bool = False,
) -> Change:
    """How to get from a flavor's extra specs to a recipe's.

    All that is ours and not in the recipe goes, all else stays; aliases of
    other devices are kept beside ours.

    :param wanted: of :func:`recipe`; empty to take everything of ours out.
    :raises RecipeError: if the rest of the flavor does not go with it.
    """
    write = dict(wanted)
    if ALIAS in write:
        write[ALIAS] = _with_alias(current.get(ALIAS, ''), write[ALIAS])
    remove = tuple(
        key for key in sorted(current) if key not in write and is_ours(key)
    )
    others = _suffixes(
        key for key in current if key not in remove and not is_ours(key)
    )
    policy = _group_policy(current, _suffixes(wanted), others)
    if policy:
        write[GROUP_POLICY] = policy
    elif GROUP_POLICY in current and _suffixes(filter(is_ours, current)):
        remove += (GROUP_POLICY,)
    write = {
        key: value for key, value in write.items() if current.get(key) != value
    }
    made = Change(write, remove, dict(current))
    found = problems(made.after, sriov_ports=sriov_ports)
    if found and wanted:
        raise RecipeError('; '.join(found))
    return made


def without_alias(made: Change, name: str) -> Change:
    """A change that also takes one PCI alias out of the flavor."""
    kept = _other_aliases(made.after.get(ALIAS, ''), name)
    write = {key: text for key, text in made.write.items() if key != ALIAS}
    remove = [key for key in made.remove if key != ALIAS]
    if kept and ','.join(kept) != made.before.get(ALIAS):
        write[ALIAS] = ','.join(kept)
    elif not kept and ALIAS in made.before:
        remove.append(ALIAS)
    return Change(write, tuple(remove), made.before)


def alias_devices(specs: Mapping[str, str]) -> int:
    """PCI devices that a flavor asks for by alias; 0 if it cannot be read.

    :param specs: all extra specs of the flavor.
    """
    total = 0
    for item in specs.get(ALIAS, '').split(','):
        count = item.strip().partition(':')[2]
        if count.isdigit():
            total += int(count)
    return total


def merged(
    current: Mapping[str, str], options: Mapping[str, str]
) -> dict[str, str]:
    """Options for :func:`recipe`: those given over the flavor's own."""
    kept = {
        key.name: current[key.full_name]
        for key in extra_specs.KEYS
        if key.full_name in current
    }
    return {**kept, **options}


def physnet_of(current: Mapping[str, str]) -> str | None:
    """Physical network that a flavor's uplink must be on, if it says so."""
    prefix = model.physnet_trait('')
    for key in sorted(filter(is_ours, current)):
        name = key.partition(':')[2]
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return None


def is_ours(key: str) -> bool:
    """Whether an extra spec is one that :func:`recipe` may write.

    Not :data:`ALIAS` and :data:`GROUP_POLICY`, which others use as well.
    """
    return key.startswith(extra_specs.PREFIX) or any(
        key.startswith(prefix + suffix.removeprefix('_') + ':')
        for prefix in _PREFIXES
        for suffix in (model.RESOURCE_GROUP, *PAIR)
    )


def problems(
    specs: Mapping[str, str], *, sriov_ports: bool | None = None
) -> list[str]:
    """What does not fit together in a flavor's extra specs.

    :param sriov_ports: whether an ``exported`` flavor gets its devices
        from ports; None when that cannot be known, as for a flavor that
        is only looked at.
    """
    parsed = extra_specs.parse(specs)
    found = list(parsed.errors)
    network = parsed.network
    found += _claim_problems(specs, network)
    if network == 'exported' and ALIAS not in specs and sriov_ports is False:
        found.append(
            f'vhpc:network=exported without {ALIAS}: name the alias, or '
            'boot with SR-IOV ports'
        )
    if network == 'exported' and parsed.uplink_nic is not None:
        found.append(
            'vhpc:uplink_nic chooses the NIC that is plugged into a '
            'bridge; exported has none'
        )
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
    if parsed.max_overcommit is not None and parsed.max_overcommit <= 0:
        found.append(
            'vhpc:max_overcommit=0 leaves no host: 1.0 is one vCPU per CPU'
        )
    dedicated = specs.get('hw:cpu_policy') == 'dedicated'
    if dedicated and parsed.io_pool == 'always':
        found.append(
            'vhpc:io_pool=always asks for re-pinning, but flavors with '
            'hw:cpu_policy=dedicated are never re-pinned'
        )
    return found


def advice(specs: Mapping[str, str]) -> list[str]:
    """What works, but is likely not what was meant."""
    parsed = extra_specs.parse(specs)
    found = []
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
    return found


def _claims(network: str | None, physnet: str | None) -> dict[str, str]:
    """Request groups: one uplink each, all on different uplinks."""
    specs: dict[str, str] = {}
    traits = BRIDGE_TRAITS.get(network or '', ())
    suffixes = PAIR if len(traits) > 1 else (model.RESOURCE_GROUP,)
    for suffix, trait in zip(suffixes, traits, strict=False):
        specs[f'resources{suffix}:{model.UPLINK}'] = '1'
        specs[f'trait{suffix}:{trait}'] = 'required'
        if physnet:
            wanted = model.physnet_trait(physnet)
            specs[f'trait{suffix}:{wanted}'] = 'required'
    if len(traits) > 1:
        specs[GROUP_POLICY] = 'isolate'
    return specs


def _group_policy(
    current: Mapping[str, str], ours: set[str], others: set[str]
) -> str | None:
    """Value that ``group_policy`` must have, None if it is not needed."""
    policy = current.get(GROUP_POLICY)
    if len(ours) > 1:
        if others and policy not in (None, 'isolate'):
            raise RecipeError(
                f'the flavor has {GROUP_POLICY}={policy} for its request '
                f'groups {", ".join(sorted(others))}; multiple-shared needs '
                'isolate: take those groups out first'
            )
        return 'isolate'
    if len(ours | others) > 1:
        # Placement refuses several groups without a policy; none changes
        # nothing for the others.
        return policy or 'none'
    # With one group or none it has no meaning.
    return None


def _claim_problems(
    specs: Mapping[str, str], network: str | None
) -> list[str]:
    """Whether the request groups are those of the network configuration."""
    wanted = _claims(network, None)
    found = [
        f'vhpc:network={network} needs {key}={value}, the flavor has '
        f'{specs.get(key, "nothing")}'
        for key, value in wanted.items()
        if specs.get(key) != value
    ]
    physnets = model.physnet_trait('')
    for key in sorted(specs):
        if not is_ours(key) or key.startswith(extra_specs.PREFIX):
            continue
        if key not in wanted and f':{physnets}' not in key:
            found.append(
                f'{key} does not belong to '
                + (f'vhpc:network={network}' if network else 'this flavor')
            )
    if len(_suffixes(specs)) > 1 and GROUP_POLICY not in specs:
        found.append(
            f'several request groups without {GROUP_POLICY}: Placement '
            'would refuse them'
        )
    return found


def _with_alias(current: str, ours: str) -> str:
    """Aliases of a flavor with ours among them, once."""
    return ','.join([*_other_aliases(current, ours), ours])


def _other_aliases(current: str, ours: str) -> list[str]:
    """The items of ``pci_passthrough:alias`` that are not the one given."""
    name = ours.split(':')[0]
    items = [item.strip() for item in current.split(',')]
    return [item for item in items if item and item.split(':')[0] != name]


def _suffixes(keys: Iterable[str]) -> set[str]:
    """Suffixes of the request groups with resources, such as ``_uplink``."""
    found = set()
    for key in keys:
        group, colon, _ = key.partition(':')
        if colon and group.startswith('resources') and group != 'resources':
            found.add(group.removeprefix('resources'))
    return found
