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


"""What bridges and uplinks this host has: sysfs -> HostTopology.

Everything is read from sysfs, which needs no privilege and no netlink
socket, and can be looked at in a container or a test by another root.
"""

import dataclasses
import fnmatch
from collections.abc import Iterator, Sequence
from pathlib import Path

from nova_vhpc.topology import bridge_rules, model

_DEAD = ('down', 'lowerlayerdown', 'notpresent', 'dormant')
_IFF_UP = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Findings:
    """The host's topology, and what of the wishes could not be met.

    :ivar problems: one sentence each: what, where, what to do.
    """

    topology: model.HostTopology
    problems: tuple[str, ...] = ()


class Discovery:
    """Reads bridges and uplinks; holds no state between two readings.

    :param bridge_rules: which bridges count; empty for all Linux bridges
        with a physical uplink, as shared ones.
    :param nic_patterns: names of ports that count as uplinks though they
        are not physical.
    :param shared_slots: guests per uplink of a shared bridge.
    :param default_mbps: speed of an uplink whose driver does not tell.
    :param sysfs: where sysfs is mounted.
    """

    def __init__(
        self,
        bridge_rules: Sequence[bridge_rules.BridgeRule] = (),
        *,
        nic_patterns: Sequence[str] = (),
        shared_slots: int = 32,
        default_mbps: int = 1000,
        sysfs: Path = Path('/sys'),
    ) -> None:
        self._rules = tuple(bridge_rules)
        self._nic_patterns = tuple(nic_patterns)
        self._shared_slots = shared_slots
        self._default_mbps = default_mbps
        self._net = sysfs / 'class' / 'net'

    def discover(self, node: str) -> Findings:
        """Read all bridges of this host.

        NICs and bridges may come and go meanwhile: what is gone when it
        is read is left out.

        :param node: name of the compute node.
        """
        bridges: list[model.Bridge] = []
        problems: list[str] = []
        linux = self._linux_bridges()
        for name in self._wanted(linux):
            rule = self._rule(name)
            nics = list(rule.nics)
            if name in linux:
                nics += [n for n in self._ports(name) if n not in nics]
            problem = self._problem(
                name, rule, name in linux, nics
            ) or _unsayable(name, nics)
            if problem is not None:
                problems.append(problem)
                continue
            uplinks = tuple(self._uplink(name, nic, rule) for nic in nics)
            if uplinks:
                bridges.append(model.Bridge(name, rule.kind, uplinks))
        return Findings(
            model.HostTopology(node, tuple(bridges)), tuple(problems)
        )

    def _linux_bridges(self) -> frozenset[str]:
        return frozenset(
            path.name
            for path in self._entries(self._net)
            if (path / 'bridge').is_dir()
        )

    def _wanted(self, linux: frozenset[str]) -> list[str]:
        if not self._rules:
            return sorted(linux)
        named = {rule.pattern for rule in self._rules if rule.exact}
        matched = {n for n in linux if bridge_rules.find_rule(self._rules, n)}
        return sorted(named | matched)

    def _rule(self, name: str) -> bridge_rules.BridgeRule:
        return bridge_rules.find_rule(
            self._rules, name
        ) or bridge_rules.BridgeRule(name)

    def _problem(
        self,
        name: str,
        rule: bridge_rules.BridgeRule,
        linux: bool,
        nics: Sequence[str],
    ) -> str | None:
        if not self._rules:
            return None
        if not linux and not nics:
            if (self._net / name).exists():
                return (
                    f'bridge {name} is not a Linux bridge; if it is an '
                    f'Open vSwitch bridge, name its uplink with nic='
                )
            return f'bridge {name} does not exist on this host'
        if not nics:
            return (
                f'bridge {name} has no uplink; attach a physical NIC, or '
                f'name virtual ones in [vhpc_topology] nic_patterns'
            )
        if rule.kind is model.BridgeKind.SEPARATE and len(nics) > 1:
            return (
                f'separate bridge {name} has {len(nics)} uplinks '
                f'({", ".join(nics)}); bond them, or make it shared'
            )
        return None

    def _ports(self, bridge: str) -> list[str]:
        return sorted(
            path.name
            for path in self._entries(self._net / bridge / 'brif')
            if self._is_uplink(path.name)
        )

    def _is_uplink(self, nic: str) -> bool:
        if any(fnmatch.fnmatchcase(nic, p) for p in self._nic_patterns):
            return True
        return self._is_physical(nic)

    def _is_physical(self, nic: str, depth: int = 0) -> bool:
        """Whether a device is behind it: a NIC, or bond or VLAN on one."""
        path = self._net / nic
        if (path / 'device').exists():
            return True
        if 'DEVTYPE=vxlan' in (self._read(nic, 'uevent') or '').split():
            # A tenant's tunnel, by way of a NIC that other bridges are on.
            return False
        # A VLAN on a bond on a NIC is the deepest that makes sense.
        return depth < 3 and any(
            self._is_physical(entry.name.removeprefix('lower_'), depth + 1)
            for entry in self._entries(path)
            if entry.name.startswith('lower_')
        )

    def _uplink(
        self, bridge: str, nic: str, rule: bridge_rules.BridgeRule
    ) -> model.Uplink:
        up = self._is_up(nic) and self._is_enabled(bridge)
        separate = rule.kind is model.BridgeKind.SEPARATE
        return model.Uplink(
            nic=nic,
            bridge=bridge,
            kind=rule.kind,
            mbps=self._mbps(nic, rule) if up else 0,
            up=up,
            slots=1 if separate else rule.slots or self._shared_slots,
            physnet=rule.physnet,
            exported=self._is_exported(nic),
        )

    def _is_up(self, nic: str) -> bool:
        # The carrier of a NIC that is switched off cannot even be read.
        return (
            self._read(nic, 'carrier') == '1'
            and self._read(nic, 'operstate') not in _DEAD
        )

    def _is_exported(self, nic: str) -> bool:
        functions = self._read(nic, 'device/sriov_numvfs') or '0'
        return functions.isdecimal() and int(functions) > 0

    def _is_enabled(self, bridge: str) -> bool:
        flags = self._read(bridge, 'flags')
        try:
            return flags is None or bool(int(flags, 16) & _IFF_UP)
        except ValueError:
            return False

    def _mbps(self, nic: str, rule: bridge_rules.BridgeRule) -> int:
        if rule.mbps is not None:
            return rule.mbps
        try:
            mbps = int(self._read(nic, 'speed') or '')
        except ValueError:
            mbps = -1
        # Drivers say -1, or as unsigned 65535 or 2**32-1, for "unknown".
        if mbps <= 0 or mbps in (65535, 4294967295):
            return self._default_mbps
        return mbps

    def _read(self, nic: str, name: str) -> str | None:
        try:
            return (self._net / nic / name).read_text('ascii').strip()
        except (OSError, UnicodeDecodeError):
            return None

    @staticmethod
    def _entries(path: Path) -> Iterator[Path]:
        try:
            yield from path.iterdir()
        except OSError:
            return


def _unsayable(bridge: str, nics: Sequence[str]) -> str | None:
    """Why names cannot be published: to the kernel they are just bytes."""
    for name in (bridge, *nics):
        try:
            name.encode()
        except UnicodeEncodeError:
            return (
                f'{name!a} of bridge {bridge!a} is no UTF-8 text, '
                'so that it cannot be published; give it another name'
            )
    return None
