# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Whether the links of claimed uplinks are up."""

from collections.abc import Sequence

from nova_vhpc.agent.uplinks import claims
from nova_vhpc.topology import links, open_vswitch


class UplinkLinks:
    """Reads link states: Open vSwitch's own, of other uplinks the kernel's.

    :param kernel: the network interfaces of this host.
    """

    def __init__(self, kernel: links.Links) -> None:
        self._kernel = kernel

    def down(
        self,
        state: open_vswitch.OpenVswitch,
        uplinks: Sequence[claims.ClaimedUplink],
    ) -> tuple[claims.ClaimedUplink, ...]:
        """Return those uplinks whose links are down.

        An uplink that neither Open vSwitch nor the kernel knows is not among
        them.

        :param state: the database of the host's Open vSwitch.
        """
        return tuple(one for one in uplinks if not self._is_up(state, one.nic))

    def _is_up(self, state: open_vswitch.OpenVswitch, nic: str) -> bool:
        port = state.port.get(nic)
        if port is not None:
            # A bond passes packets as long as one member does.
            return any(one.link_up for one in port.interfaces)
        port = state.port_of.get(nic)
        if port is not None:
            return any(
                one.link_up for one in port.interfaces if one.name == nic
            )
        link = self._kernel.link(nic)
        return link is None or link.up
