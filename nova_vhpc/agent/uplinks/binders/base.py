# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The interface of binders.

A claim on an uplink is an entry in Placement; by itself it moves no packet. A
binder makes the packets of a claiming server's NICs take the claimed uplinks.
Each binder serves one kind of network, in one way.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

from nova_vhpc.agent.libvirt import interfaces
from nova_vhpc.agent.uplinks import claims

Networks = Literal['tunnel', 'provider']
"""Kind of networks: their packets leave the host in tunnels, or by a bridge of
a physical network as the guest has sent them."""

TUNNEL: Networks = 'tunnel'
PROVIDER: Networks = 'provider'


class Binder(Protocol):
    """Steers the packets of guests' NICs to claimed uplinks, in one way.

    An entry point of the namespace ``nova_vhpc.binders`` is a callable that
    takes the configuration and the connection to ovsdb (None if it is
    switched off), and returns a binder; or None if it cannot work without.

    A binder journals what it changes before the change, and restores exactly
    that. What an external change has set meanwhile it leaves alone.

    :ivar name: name of the binder's entry point, for logs and the status.
    :ivar networks: kind of networks whose packets it steers.
    """

    name: str
    networks: Networks

    def start(self, wake: Callable[[], None]) -> None:
        """Begin to watch for changes of what was bound.

        :param wake: called after a change that may concern a bound guest;
            returns at once.
        """

    def serves(
        self,
        uuid: str,
        nics: Sequence[interfaces.Nic],
        uplinks: Sequence[claims.ClaimedUplink],
    ) -> bool:
        """Return whether NICs and uplinks are of the kind that this binds.

        :param uuid: UUID of the guest.
        :param uplinks: the uplinks that the server has claimed.
        """

    def plan(
        self,
        domain: Any,
        uplinks: Sequence[claims.ClaimedUplink],
        uplink_nic: int | None,
    ) -> Mapping[str, str]:
        """Return what :meth:`bind` would write, by MAC address of the NIC.

        :param uplinks: the uplinks that the server has claimed.
        :param uplink_nic: ``vhpc:uplink_nic``; None if it is not set.
        :raises UnsupportedError: a claim cannot steer packets on this host;
            the text names host and NIC or uplink, and the remedy.
        """

    def bind(
        self,
        domain: Any,
        uplinks: Sequence[claims.ClaimedUplink],
        uplink_nic: int | None,
    ) -> int:
        """Make the claims steer a guest's packets; parameters as in plan.

        :returns: number of NICs that were changed.
        :raises UnsupportedError: as in :meth:`plan`.
        :raises JournalError: nothing was changed.
        :raises OvsdbError, libvirt.libvirtError: a change was refused; those
            before it are journalled.
        """

    def intact(self, uuid: str) -> bool:
        """Return whether all that :meth:`bind` wrote is still in force.

        Asks nobody: it is called twice a second for each bound guest.

        :param uuid: UUID of the guest.
        """

    def in_force(self, uuid: str) -> Mapping[str, str]:
        """Return where a guest's packets go now, by MAC address of the NIC."""

    def problem(self, uuid: str) -> str:
        """Return why a bound guest's packets do not take the uplinks now.

        Empty if they do, or soon may. Names host and NIC or uplink, and the
        remedy. Asks nobody, like :meth:`intact`.
        """

    def uuids(self) -> frozenset[str]:
        """Return the UUIDs of guests that :meth:`restore` is due for.

        They have a record in the journal, or are bound without.
        """

    def restore(self, domain: Any) -> int:
        """Restore what was changed for a guest.

        :returns: number of NICs that were restored.
        :raises JournalError, OvsdbError, libvirt.libvirtError: it failed; the
            record is kept.
        """

    def forget(self, uuid: str) -> None:
        """Remove the record of a guest that libvirt does not know any more.

        What is left of it on the host is restored first.

        :raises JournalError, OvsdbError: it failed; the record is kept.
        """

    def restore_all(self, connection: Callable[[], Any]) -> dict[str, str]:
        """Restore all guests that have a record.

        :param connection: returns libvirt's connection.
        :returns: reasons for failures, by UUID; these records are kept.
        :raises libvirt.libvirtError: libvirt is needed, and is away.
        """
