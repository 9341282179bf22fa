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


"""Discover the bridges and uplinks of this host.

Everything is read from sysfs. That needs no privilege and no netlink socket,
and a container or a test can use another root directory. Only alternative
names of interfaces, which sysfs lacks, are looked up by a system call.
"""

import contextlib
import dataclasses
import fnmatch
import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

from nova_vhpc.topology import bridge_rules, model

_DEAD = ('down', 'lowerlayerdown', 'notpresent', 'dormant')
_IFF_UP = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Findings:
    """The host's topology, and the rules that could not be applied.

    :ivar topology: bridges and uplinks that guests may use.
    :ivar problems: one sentence for each bridge or uplink of a rule: what is
        wrong, where, and what to do.
    """

    topology: model.HostTopology
    problems: tuple[str, ...] = ()


class Discovery:
    """Reads bridges and uplinks. Keeps no state between two calls.

    :param bridge_rules: rules that choose bridges; empty for all Linux
        bridges with a physical uplink, as shared bridges.
    :param nic_patterns: names, with the wildcards of fnmatch, of virtual
        ports that count as uplinks.
    :param shared_slots: number of guests per uplink of a shared bridge.
    :param default_mbps: speed in Mbit/s of an uplink whose driver does not
        report one.
    :param sysfs: directory where sysfs is mounted.
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
        """Return the bridges of this host, and problems with the rules.

        A NIC or bridge that disappears during the call is left out.

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
            ) or _unpublishable(name, nics)
            if problem is not None:
                problems.append(problem)
                continue
            problems += self._missing(name, rule)
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

    def _missing(
        self, bridge: str, rule: bridge_rules.BridgeRule
    ) -> Iterator[str]:
        """Yield a problem for each name of a rule that sysfs does not have.

        Such uplinks are published as down: the NIC may come back.
        """
        if not self._exists(bridge):
            yield f'bridge {bridge} does not exist on this host'
        for nic in rule.nics:
            if self._exists(nic):
                continue
            interface = self._interface(nic)
            hint = (
                f'it is an altname of {interface}; name the uplink by '
                f'nic={interface}'
                if interface
                else 'is it misspelled, an altname, which does not count, or '
                'a port bound to DPDK, which cannot be published?'
            )
            yield (
                f'uplink {nic} of bridge {bridge} is no network interface of '
                f'this host: {hint}'
            )

    def _exists(self, name: str) -> bool:
        if '/' in name or name in ('.', '..'):
            return False
        # Unlike Path.exists, this does not raise for a name that is too long.
        return os.path.exists(self._net / name)

    def _interface(self, alternative: str) -> str | None:
        """Return the interface that has an alternative name, or None.

        The system call knows alternative names of up to 15 characters. It
        answers for the agent's own network namespace, so the interface counts
        only if sysfs has it by the same number.
        """
        with contextlib.suppress(OSError, ValueError):
            index = socket.if_nametoindex(alternative)
            name = socket.if_indextoname(index)
            if self._read(name, 'ifindex') == str(index):
                return name
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
        """Return whether a port is a NIC, or a bond or VLAN on one."""
        path = self._net / nic
        if (path / 'device').exists():
            return True
        if 'DEVTYPE=vxlan' in (self._read(nic, 'uevent') or '').split():
            # A VXLAN device is a tenant's tunnel. It passes through a NIC,
            # but that NIC is the uplink of other bridges.
            return False
        # The deepest sensible stack is a VLAN on a bond on a NIC.
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
        # Reading the carrier of a NIC that is switched off fails.
        return (
            self._read(nic, 'carrier') == '1'
            and self._read(nic, 'operstate') not in _DEAD
        )

    def _is_exported(self, nic: str) -> bool:
        functions = self._read(nic, 'device/sriov_numvfs') or '0'
        return functions.isdecimal() and functions.strip('0') != ''

    def _is_enabled(self, bridge: str) -> bool:
        flags = self._read(bridge, 'flags')
        try:
            if not self._exists(bridge):
                return False
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
        # Drivers report an unknown speed as -1, which read as an unsigned
        # number is 65535 or 2**32-1.
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


def _unpublishable(bridge: str, nics: Sequence[str]) -> str | None:
    """Return why a name cannot be published, or None.

    The kernel accepts any bytes; Placement needs UTF-8 text.
    """
    for name in (bridge, *nics):
        try:
            name.encode()
        except UnicodeEncodeError:
            return (
                f'{name!a} of bridge {bridge!a} is not UTF-8 text, '
                'so that it cannot be published; give it another name'
            )
    return None
