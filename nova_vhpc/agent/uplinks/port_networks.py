# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Reads which network a guest's port is on, from this host alone.

Neither Neutron nor OVN's southbound database is asked: a request of each
compute host would be a burden on them, and the agent may have no access.
"""

import logging
import pathlib
import subprocess
import time
from collections.abc import Callable, Mapping

from nova_vhpc.topology import open_vswitch, port_network

LOG = logging.getLogger(__name__)

FLOWS_AGE_S = 10.0
"""Time for which flows are not read again while ovsdb does not change."""

UNWIRED_AGE_S = 1.0
"""The same if a port has no flow yet."""

SETTLE_S = 10.0
"""Time after which all flows of a port are there: ovn-controller makes those
of the port first, then those to bridges of physical networks."""

_INSTALLED_KEY = 'ovn-installed-ts'
"""Key in ``external_ids``: when ovn-controller has wired the port, in
milliseconds since 1970."""

TIMEOUT_S = 5.0

PROGRAM = 'ovs-ofctl'


class FlowsError(Exception):
    """The flows of a bridge cannot be read; the text says what to do."""


class PortNetworks:
    """The networks of all ports of guests.

    :param read: returns the present state of ovsdb; the same object until
        something changes, and None before the first answer.
    :param dump_flows: returns the flows of table 0 of a bridge, or raises
        :class:`FlowsError`.
    """

    def __init__(
        self,
        read: Callable[[], open_vswitch.OpenVswitch | None],
        dump_flows: Callable[[open_vswitch.Bridge], str],
    ) -> None:
        self._read = read
        self._dump_flows = dump_flows
        self._state: open_vswitch.OpenVswitch | None = None
        self._read_s = 0.0
        self._has_flows = False
        self._flows_problem = ''
        self._of_ml2: Mapping[str, port_network.PortNetwork] = {}
        self._of_ovn: Mapping[int, port_network.PortNetwork] = {}

    def of_port(
        self, port: open_vswitch.Interface, age_s: float | None = None
    ) -> port_network.PortNetwork | None:
        """Return the network of a guest's port; None if it is unknown.

        It is unknown before Neutron's agent or ovn-controller has wired the
        port, and with OVN if its flows cannot be read.

        :param age_s: greatest age of the flows, in seconds.
        """
        self._refresh(FLOWS_AGE_S if age_s is None else age_s)
        found = self._find(port)
        if found is None:
            self._refresh(UNWIRED_AGE_S)
            found = self._find(port)
        return found

    def may_change(self, port: open_vswitch.Interface) -> bool:
        """Return whether more may soon be known of a port's network."""
        if port.name in self._of_ml2:
            return False
        if self._find(port) is None:
            return self._has_flows or bool(self._of_ml2)
        if self._state is None or not self._state.neutron_bridges.mappings:
            # No network of OVN can leave this host but in tunnels.
            return False
        try:
            installed_s = int(port.external_ids[_INSTALLED_KEY]) / 1000
        except (KeyError, ValueError):
            # It is written last, and not by OVN before 22.03.
            return True
        return 0 <= time.time() - installed_s < SETTLE_S

    def unknown_because(self, port: open_vswitch.Interface) -> str:
        """Return why the network of a port is unknown, and what to do."""
        if self._flows_problem:
            return self._flows_problem
        if self._has_flows:
            return (
                'no flow of the integration bridge tells its network: is '
                'ovn-controller running, and has it claimed the port '
                f'(external_ids:iface-id of {port.name})?'
            )
        return (
            f'nobody has recorded it at port {port.name}: is the agent of '
            'Neutron, or ovn-controller, running?'
        )

    def _find(
        self, port: open_vswitch.Interface
    ) -> port_network.PortNetwork | None:
        found = self._of_ml2.get(port.name)
        if found is None and port.ofport is not None:
            found = self._of_ovn.get(port.ofport)
        return found

    def _refresh(self, age_s: float) -> None:
        """Read all networks, if those last read are older."""
        state = self._read()
        now_s = time.monotonic()
        if state is None or (
            state is self._state and now_s - self._read_s < age_s
        ):
            return
        self._state, self._read_s = state, now_s
        self._of_ml2 = port_network.of_ml2(
            port for bridge in state.bridges for port in bridge.ports
        )
        flows, problem = '', ''
        name = state.neutron_bridges.integration
        self._has_flows = state.has_ovn and name in state.bridge
        if self._has_flows:
            try:
                flows = self._dump_flows(state.bridge[name])
            except FlowsError as error:
                self._has_flows = False
                problem = str(error)
        if problem and problem != self._flows_problem:
            LOG.warning('%s', problem)
        self._flows_problem = problem
        self._of_ovn = port_network.of_ovn(state, flows)


class FlowReader:
    """Reads flows by ``ovs-ofctl``, which comes with Open vSwitch.

    :param remote: ``[vhpc_topology] ovsdb_connection``; the sockets of the
        bridges are beside that of the database.
    """

    def __init__(self, remote: str) -> None:
        scheme, _, path = remote.partition(':')
        self._directory = (
            pathlib.Path(path).parent if scheme == 'unix' else None
        )

    def dump(self, bridge: open_vswitch.Bridge) -> str:
        """Return the flows of table 0 of a bridge.

        :raises FlowsError: they cannot be read.
        """
        target = (
            bridge.name
            if self._directory is None
            else f'unix:{self._directory / bridge.name}.mgmt'
        )
        # By itself, ovs-ofctl speaks OpenFlow 1.0 only.
        versions = ['-O', ','.join(bridge.protocols)]
        try:
            return subprocess.run(
                [
                    PROGRAM,
                    *(versions if bridge.protocols else []),
                    '--no-stats',
                    'dump-flows',
                    target,
                    'table=0',
                ],
                check=True,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
            ).stdout
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            stderr = getattr(error, 'stderr', None) or ''
            raise FlowsError(_flows_problem(bridge, error, stderr)) from error


def _flows_problem(
    bridge: open_vswitch.Bridge, error: Exception, stderr: str | bytes
) -> str:
    """Return why flows cannot be read, and what to do."""
    said = stderr.decode() if isinstance(stderr, bytes) else stderr
    if isinstance(error, FileNotFoundError):
        remedy = 'install ovs-ofctl'
    elif 'Permission denied' in said or isinstance(error, PermissionError):
        remedy = (
            "give the agent's unit CapabilityBoundingSet=CAP_DAC_OVERRIDE, if "
            'ovs-vswitchd does not run as root'
        )
    elif 'version' in said:
        remedy = (
            f'let the bridge have a version of OpenFlow that {PROGRAM} of '
            'this host speaks (column protocols of the table Bridge)'
        )
    else:
        remedy = 'see whether ovs-vswitchd is running'
    return (
        f'flows of bridge {bridge.name} cannot be read '
        f'({" ".join(f"{error} {said}".split())}), so that the networks of '
        f'ports of OVN are unknown; {remedy}'
    )
