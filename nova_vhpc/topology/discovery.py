# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Discover the bridges and uplinks of this host that guests may use.

Open vSwitch is read from its database, all else from sysfs.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from nova_vhpc.topology import (
    bridge_rules,
    links,
    model,
    open_vswitch,
    survey,
)
from nova_vhpc.topology.ovs_uplinks import Nic


@dataclasses.dataclass(frozen=True, slots=True)
class Findings:
    """The host's topology, and what keeps uplinks from being used.

    :ivar topology: bridges and uplinks that guests may use.
    :ivar problems: one sentence for each bridge, uplink, physical network or
        encap IP: what is wrong, where, and what to do.
    :ivar notes: one sentence for each physical network or encap IP that leads
        to no uplink, as may be intended.
    """

    topology: model.HostTopology
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Discovery:
    """Reads bridges and uplinks. Keeps no state between two calls.

    :param bridge_rules: rules that choose bridges; empty for all bridges with
        a physical uplink that guests can reach, as shared bridges.
    :param nic_patterns: names, with the wildcards of fnmatch, of virtual
        ports that count as uplinks.
    :param shared_slots: number of guests per uplink of a shared bridge.
    :param default_mbps: speed in Mbit/s of an uplink whose driver does not
        report one.
    :param sysfs: directory where sysfs is mounted.
    :param open_vswitch: returns the database of Open vSwitch as last known;
        None if it is unknown.
    :param ml2_bridges: returns the bridges of Neutron's Open vSwitch agent;
        None if there is no such agent.
    :param addresses: returns where each IP address of the host is.
    """

    def __init__(
        self,
        bridge_rules: Sequence[bridge_rules.BridgeRule] = (),
        *,
        nic_patterns: Sequence[str] = (),
        shared_slots: int = 32,
        default_mbps: int = 1000,
        sysfs: Path = Path('/sys'),
        open_vswitch: Callable[[], open_vswitch.OpenVswitch | None] = lambda: (
            None
        ),
        ml2_bridges: Callable[
            [], open_vswitch.NeutronBridges | None
        ] = lambda: None,
        addresses: Callable[
            [], Mapping[str, links.Address]
        ] = links.read_addresses,
    ) -> None:
        self._rules = tuple(bridge_rules)
        self._nic_patterns = tuple(nic_patterns)
        self._shared_slots = shared_slots
        self._default_mbps = default_mbps
        self._links = links.Links(sysfs)
        self._open_vswitch = open_vswitch
        self._ml2_bridges = ml2_bridges
        self._addresses = addresses

    def discover(self, node: str) -> Findings:
        """Return the bridges of this host, and problems with them.

        A NIC or bridge that disappears during the call is left out.

        :param node: name of the compute node.
        """
        host = survey.Survey(
            self._links,
            self._nic_patterns,
            self._open_vswitch(),
            self._ml2_bridges(),
            self._addresses,
        )
        bridges: list[model.Bridge] = []
        wires: dict[str, frozenset[str]] = {}
        problems = list(host.problems)
        for name in self._wanted(host):
            rule = self._rule(name)
            nics = self._nics(name, rule, host)
            problem = self._problem(name, rule, nics, host) or _unpublishable(
                name, nics
            )
            if problem is not None:
                problems.append(problem)
                continue
            problems += self._missing(name, rule, nics, host)
            uplinks = tuple(self._uplink(name, n, rule, host) for n in nics)
            if uplinks:
                bridges.append(model.Bridge(name, rule.kind, uplinks))
                wires[name] = frozenset().union(*map(host.wire, nics))
        shared = _shared_wires(bridges, wires)
        dropped = [name for name, _, is_separate in shared if is_separate]
        for _, text, is_separate in shared:
            (problems if is_separate else host.notes).append(text)
        return Findings(
            model.HostTopology(
                node, tuple(b for b in bridges if b.name not in dropped)
            ),
            tuple(problems),
            tuple(host.notes),
        )

    def _wanted(self, host: survey.Survey) -> list[str]:
        if not self._rules:
            return sorted(host.nics)
        named = {rule.pattern for rule in self._rules if rule.exact}
        matched = {
            n for n in host.nics if bridge_rules.find_rule(self._rules, n)
        }
        return sorted(named | matched)

    def _rule(self, name: str) -> bridge_rules.BridgeRule:
        return bridge_rules.find_rule(
            self._rules, name
        ) or bridge_rules.BridgeRule(name)

    def _nics(
        self,
        bridge: str,
        rule: bridge_rules.BridgeRule,
        host: survey.Survey,
    ) -> tuple[Nic, ...]:
        """Return the uplinks of a bridge.

        Those that the rule names come first. Open vSwitch's own are left out
        then, because the operator may have named the members of a bond.
        """
        named = tuple(host.nic(nic) for nic in rule.nics)
        if named and bridge not in host.linux:
            return named
        found = host.nics.get(bridge) or host.nics_of(bridge)
        names = {nic.name for nic in named}
        return (*named, *(nic for nic in found if nic.name not in names))

    def _problem(
        self,
        name: str,
        rule: bridge_rules.BridgeRule,
        nics: Sequence[Nic],
        host: survey.Survey,
    ) -> str | None:
        if not self._rules:
            return None
        if not nics:
            return self._without_uplink(name, host)
        # Each member of a bond can belong to one guest.
        ports = {nic.bond or nic.name for nic in nics}
        if rule.kind is model.BridgeKind.SEPARATE and len(ports) > 1:
            return (
                f'separate bridge {name} has {len(ports)} uplinks '
                f'({", ".join(n.name for n in nics)}); bond them, or make it '
                'shared'
            )
        return None

    def _without_uplink(self, name: str, host: survey.Survey) -> str:
        if name not in host.linux and not host.is_ovs(name):
            if self._links.exists(name):
                return (
                    f'bridge {name} is not a Linux bridge; if it is an '
                    f'Open vSwitch bridge, name its uplink with nic=, or '
                    f'give [vhpc_topology] ovsdb_connection'
                )
            return _no_bridge(name, host)
        behind = host.behind(name)
        if behind:
            return (
                f'bridge {name} has no uplink of its own; it reaches those '
                f'of {", ".join(behind)}: name that bridge instead'
            )
        return (
            f'bridge {name} has no uplink; attach a physical NIC, or '
            f'name virtual ones in [vhpc_topology] nic_patterns'
        )

    def _missing(
        self,
        bridge: str,
        rule: bridge_rules.BridgeRule,
        nics: Sequence[Nic],
        host: survey.Survey,
    ) -> Iterator[str]:
        """Yield a problem for each name of a rule that the host does not have.

        Such uplinks are published as down: the NIC may come back.
        """
        if not self._links.exists(bridge) and not host.is_ovs(bridge):
            yield _no_bridge(bridge, host)
        for nic in nics[: len(rule.nics)]:
            if self._links.is_no_wire(nic.name):
                yield (
                    f'uplink {nic.name} of bridge {bridge} is no NIC: frames '
                    'do not leave by it; name the NIC in nic='
                )
            if nic.members or self._links.exists(nic.name):
                continue
            yield (
                f'uplink {nic.name} of bridge {bridge} is no network '
                'interface of this host: is it misspelled, an altname of '
                'more than 15 characters, or a port bound to DPDK that '
                'ovsdb does not have?'
            )

    def _uplink(
        self,
        bridge: str,
        nic: Nic,
        rule: bridge_rules.BridgeRule,
        host: survey.Survey,
    ) -> model.Uplink:
        link = host.link(nic, self._default_mbps)
        up = link.up and self._passes_packets(bridge, nic, host)
        separate = rule.kind is model.BridgeKind.SEPARATE
        encap_ip = host.encap_ip(bridge, nic.name)
        return model.Uplink(
            nic=nic.name,
            bridge=bridge,
            kind=rule.kind,
            mbps=(rule.mbps or link.mbps or 0) if up else 0,
            up=up,
            slots=1 if separate else rule.slots or self._shared_slots,
            physnets=(rule.physnet,)
            if rule.physnet is not None
            else host.physnets(bridge),
            exported=self._links.is_exported(nic.name),
            encap_ip=encap_ip,
            bond=nic.bond,
            rail=host.rail(encap_ip),
        )

    def _passes_packets(
        self, bridge: str, nic: Nic, host: survey.Survey
    ) -> bool:
        # Open vSwitch forwards whether the interface that has the bridge's
        # name is switched on or off. A NIC in no bridge has been looked at.
        return (
            host.is_ovs(bridge)
            or bridge == nic.name
            or self._links.is_enabled(bridge)
        )


def _shared_wires(
    bridges: Sequence[model.Bridge], wires: Mapping[str, frozenset[str]]
) -> list[tuple[str, str, bool]]:
    """Return bridges whose frames leave by a wire of another bridge.

    :param wires: ports of NICs, by bridge.
    :returns: name of the bridge, what is wrong, and whether it is separate,
        so that it cannot belong to one guest.
    """
    found = []
    former: list[model.Bridge] = []
    for bridge in sorted(bridges, key=lambda b: (b.kind != 'shared', b.name)):
        is_separate = bridge.kind is model.BridgeKind.SEPARATE
        other = next(
            (o for o in former if wires[o.name] & wires[bridge.name]), None
        )
        if other is None:
            former.append(bridge)
            continue
        what = (
            f'bridges {other.name} and {bridge.name} are on one wire '
            f'({", ".join(sorted(wires[other.name] & wires[bridge.name]))})'
        )
        if is_separate:
            what += (
                f', so that {bridge.name} cannot be separate; it is not '
                'published. Give it a NIC of its own, or make both shared'
            )
        else:
            what += (
                ': servers that claim uplinks of both share it. Give each a '
                'NIC of its own, or publish one of them ([vhpc_topology] '
                'bridges)'
            )
        found.append((bridge.name, what, is_separate))
    return found


def _no_bridge(name: str, host: survey.Survey) -> str:
    return (
        f'bridge {name} does not exist on this host; bridges that do: '
        f'{host.bridge_names()}'
    )


def _unpublishable(bridge: str, nics: Sequence[Nic]) -> str | None:
    """Return why a name cannot be published, or None.

    The kernel accepts any bytes; Placement needs UTF-8 text.
    """
    for name in (bridge, *(nic.name for nic in nics)):
        try:
            name.encode()
        except UnicodeEncodeError:
            return (
                f'{name!a} of bridge {bridge!a} is not UTF-8 text, '
                'so that it cannot be published; give it another name'
            )
    return None
