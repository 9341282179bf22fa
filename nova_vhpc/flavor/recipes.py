# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""The extra specs that a flavor of each network configuration needs.

A flavor needs ``vhpc:*`` keys for the filter and the agent, and
matching request groups (``resources_uplink:...``) for Placement, so that an
uplink is never allocated twice. :func:`recipe` returns both; :func:`change`
computes how to turn a flavor into a recipe.
"""

import dataclasses
from collections.abc import Mapping

from nova_vhpc.flavor import extra_specs, request_groups
from nova_vhpc.flavor.request_groups import (
    ALIAS,
    BRIDGE_TRAITS,
    GROUP_POLICIES,
    GROUP_POLICY,
    is_ours,
    suffixes,
)
from nova_vhpc.flavor.validation import problems
from nova_vhpc.topology import model

_NETWORK = extra_specs.PREFIX + 'network'


class RecipeError(ValueError):
    """The combination has no meaning, or no host can serve it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """A change of a flavor's extra specs. False if it changes nothing.

    :ivar write: extra specs to set.
    :ivar remove: keys to delete.
    :ivar before: all extra specs before the change.
    """

    write: Mapping[str, str]
    remove: tuple[str, ...]
    before: Mapping[str, str]

    @property
    def after(self) -> dict[str, str]:
        """Return all extra specs after the change."""
        kept = {
            key: value
            for key, value in self.before.items()
            if key not in self.remove
        }
        return {**kept, **self.write}

    @property
    def left_behind(self) -> list[str]:
        """Return a remark on each key that stays but may be of nova-vhpc."""
        after = self.after
        alias = after.get(ALIAS)
        if (
            self.before.get(_NETWORK) != 'exported'
            or after.get(_NETWORK) == 'exported'
            or alias is None
            or alias != self.before.get(ALIAS)
        ):
            return []
        return [
            f'{ALIAS}={alias} stays, since it may be for other devices; '
            'servers go on taking them. If it was for exported: openstack '
            f'flavor unset --property {ALIAS}'
        ]

    def __bool__(self) -> bool:
        return bool(self.write or self.remove)


def recipe(
    options: Mapping[str, str],
    *,
    physnet: str | None = None,
    alias: str | None = None,
    sriov_ports: bool = False,
    ports: bool = False,
) -> dict[str, str]:
    """Return the extra specs of a flavor.

    :param options: ``vhpc:*`` values by key without the prefix, such as
        ``{'network': 'shared-separate', 'workload': 'parallel'}``.
    :param physnet: Neutron physical network that the uplink must be on.
    :param alias: for ``exported``, ``NAME`` or ``NAME:COUNT`` of an alias
        in Nova's ``[pci] alias``.
    :param sriov_ports: for ``exported``, the devices come with the
        server's Neutron ports (``vnic_type`` direct) and not by alias.
    :param ports: whether the uplinks come with the server's Neutron ports
        (minimum bandwidth), and the flavor requests none.
    :raises RecipeError: the options contradict each other; the message says
        what to do.
    """
    specs = {}
    for name, value in options.items():
        key = extra_specs.BY_NAME.get(name)
        if key is None:
            raise RecipeError(
                f'{extra_specs.PREFIX}{name}: no such extra spec'
                + extra_specs.meant(extra_specs.PREFIX + name)
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
    if ports:
        _check_ports(network, physnet)
    else:
        specs.update(request_groups.recipe(network, physnet))
    if alias:
        specs[ALIAS] = alias if ':' in alias else f'{alias}:1'
    found = problems(specs, sriov_ports=sriov_ports, ports=ports)
    if found:
        raise RecipeError('; '.join(found))
    return specs


def _check_ports(network: str | None, physnet: str | None) -> None:
    """Raise RecipeError if ports cannot bring the uplinks."""
    if network == 'exported':
        raise RecipeError(
            '--ports is for uplinks of bridges; the ports of exported bring '
            'devices: give --sriov-ports'
        )
    if network is None:
        raise RecipeError(
            '--ports says where the uplinks of a network configuration come '
            'from: give a --network other than exported'
        )
    if physnet is not None:
        raise RecipeError(
            '--physnet chooses among the uplinks that a flavor claims; with '
            '--ports, the network of each port decides'
        )


def change(
    current: Mapping[str, str],
    wanted: Mapping[str, str],
    *,
    sriov_ports: bool = False,
) -> Change:
    """Return the change that turns a flavor into a recipe.

    Keys of nova-vhpc that the recipe does not have are removed; all other
    keys stay, and so do aliases of other devices.

    :param current: all extra specs of the flavor.
    :param wanted: result of :func:`recipe`; empty to remove all keys of
        nova-vhpc.
    :param sriov_ports: whether devices come with the server's ports.
    :raises RecipeError: other extra specs of the flavor contradict the
        recipe.
    """
    write = dict(wanted)
    if ALIAS in write:
        write[ALIAS] = _with_alias(current.get(ALIAS, ''), write[ALIAS])
    remove = tuple(
        key for key in sorted(current) if key not in write and is_ours(key)
    )
    others = suffixes(
        key for key in current if key not in remove and not is_ours(key)
    )
    policy = _group_policy(current, suffixes(wanted), others)
    if policy:
        write[GROUP_POLICY] = policy
    elif GROUP_POLICY in current and suffixes(filter(is_ours, current)):
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
    """Return a change that also removes one PCI alias from the flavor."""
    kept = _other_aliases(made.after.get(ALIAS, ''), name)
    write = {key: text for key, text in made.write.items() if key != ALIAS}
    remove = [key for key in made.remove if key != ALIAS]
    if kept and ','.join(kept) != made.before.get(ALIAS):
        write[ALIAS] = ','.join(kept)
    elif not kept and ALIAS in made.before:
        remove.append(ALIAS)
    return Change(write, tuple(remove), made.before)


def merged(
    current: Mapping[str, str], options: Mapping[str, str]
) -> dict[str, str]:
    """Return options for :func:`recipe`: the flavor's own, overridden."""
    kept = {
        key.name: current[key.full_name]
        for key in extra_specs.KEYS
        if key.full_name in current
    }
    return {**kept, **options}


def physnet_of(current: Mapping[str, str]) -> str | None:
    """Return the physical network that a flavor requires, None if none."""
    prefix = model.physnet_trait('')
    for key in sorted(filter(is_ours, current)):
        name = key.partition(':')[2]
        if name.startswith(prefix) and current[key] == 'required':
            return name.removeprefix(prefix)
    return None


def uses_ports(current: Mapping[str, str]) -> bool:
    """Return whether a flavor leaves its uplinks to the servers' ports."""
    network = extra_specs.parse(current).network
    return (
        network is not None
        and bool(BRIDGE_TRAITS[network])
        and not request_groups.requested_uplinks(current)
    )


def _group_policy(
    current: Mapping[str, str], ours: set[str], others: set[str]
) -> str | None:
    """Return the value that ``group_policy`` needs, None if it needs none."""
    if len(ours | others) < 2:
        # With one group or none it has no meaning.
        return None
    # Placement refuses several groups without a policy. The flavor's own
    # policy stays, because it also applies to groups that are not ours.
    policy = current.get(GROUP_POLICY)
    return policy if policy in GROUP_POLICIES else 'none'


def _with_alias(current: str, ours: str) -> str:
    """Return a flavor's aliases with the given one added once."""
    return ','.join([*_other_aliases(current, ours), ours])


def _other_aliases(current: str, ours: str) -> list[str]:
    """Return the items of ``pci_passthrough:alias`` of other aliases."""
    name = ours.split(':')[0]
    items = [item.strip() for item in current.split(',')]
    return [item for item in items if item and item.split(':')[0] != name]
