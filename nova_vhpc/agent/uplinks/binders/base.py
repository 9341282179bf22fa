# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The interface of binders, and all binders of this host.

A claim on an uplink is an entry in Placement; by itself it moves no packet. A
binder makes the packets of a claiming server's NICs take the claimed uplinks.
Each binder serves one kind of network, in one way.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

import libvirt
from stevedore import named

from nova_vhpc.agent import errors, plugins
from nova_vhpc.agent.libvirt import interfaces
from nova_vhpc.agent.ovsdb import connection as ovsdb_connection
from nova_vhpc.agent.uplinks import claims

NAMESPACE = 'nova_vhpc.binders'

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
        """Return whether NICs and uplinks are of the kind that this binds."""

    def plan(self, claimant: claims.Claimant) -> Mapping[str, str]:
        """Return what :meth:`bind` would write, by MAC address of the NIC.

        :raises UnsupportedError: a claim cannot steer packets on this host;
            the text names host and NIC or uplink, and the remedy.
        """

    def bind(self, claimant: claims.Claimant) -> int:
        """Make the claims steer a server's packets.

        :returns: number of NICs that were changed.
        :raises UnsupportedError: as in :meth:`plan`.
        :raises JournalError: nothing was changed.
        :raises OvsdbError, libvirt.libvirtError: a change was refused; those
            before it are journalled.
        """

    def intact(self, uuid: str) -> bool:
        """Return whether all that :meth:`bind` wrote is still in force.

        Asks nobody: it is called twice a second for each bound guest.
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


class BinderSet:
    """The binders that are in use.

    :param binders: in order of preference.
    """

    def __init__(self, binders: Sequence[Binder]) -> None:
        self._binders = tuple(binders)

    def start(self, wake: Callable[[], None]) -> None:
        """Let all binders watch for changes of what was bound.

        :param wake: called after a change; returns at once.
        """
        for binder in self._binders:
            binder.start(wake)

    def serving(
        self,
        uuid: str,
        nics: Sequence[interfaces.Nic],
        uplinks: Sequence[claims.ClaimedUplink],
        networks: Networks | None = None,
    ) -> Binder | None:
        """Return the first binder that serves a guest's NICs and claims.

        :param networks: kind of the NICs' networks; None if it is unknown.
        :returns: None if there is none.
        """
        for binder in self._binders:
            if networks in (None, binder.networks) and binder.serves(
                uuid, nics, uplinks
            ):
                return binder
        return None

    def records(self) -> dict[str, str]:
        """Return the name of the binder that has a record, by guest's UUID."""
        return {
            uuid: binder.name
            for binder in reversed(self._binders)
            for uuid in sorted(binder.uuids())
        }

    def restore(self, uuid: str, domain: Any) -> None:
        """Restore what any binder has changed for a guest.

        :raises JournalError, OvsdbError, libvirt.libvirtError: it failed.
        """
        for binder in self._binders:
            if uuid in binder.uuids():
                binder.restore(domain)

    def forget(self, uuid: str) -> None:
        """Remove the records of a guest that libvirt does not know any more.

        :raises JournalError, OvsdbError: it failed.
        """
        for binder in self._binders:
            if uuid in binder.uuids():
                binder.forget(uuid)

    def restore_all(self, connection: Callable[[], Any]) -> dict[str, str]:
        """Restore what any binder has changed.

        :param connection: returns libvirt's connection, or raises
            libvirtError.
        :returns: reasons for failures, by guest's UUID, or by binder.
        """
        failures = {}
        for binder in self._binders:
            if binder.uuids():
                try:
                    failures.update(binder.restore_all(connection))
                except libvirt.libvirtError as error:
                    failures[f'all ({binder.name})'] = str(error)
        return failures


def load(conf: Any, ovsdb: ovsdb_connection.Ovsdb | None) -> BinderSet:
    """Load the binders that ``[vhpc_agent]binders`` names, in that order.

    :raises ConfigError: a binder is unknown or fails to load.
    """
    made = (_load(name, conf, ovsdb) for name in conf.vhpc_agent.binders)
    return BinderSet([binder for binder in made if binder is not None])


def load_all(
    conf: Any, ovsdb: ovsdb_connection.Ovsdb | None
) -> tuple[BinderSet, list[str]]:
    """Load every binder that is installed, to restore what any has changed.

    :returns: the binders; and why others fail to load.
    """
    installed = named.NamedExtensionManager(NAMESPACE, [])
    binders, problems = [], []
    for name in sorted(installed.entry_points_names()):
        try:
            binder = _load(name, conf, ovsdb)
        except errors.ConfigError as error:
            problems.append(str(error))
        else:
            binders += [binder] if binder is not None else []
    return BinderSet(binders), problems


def _load(
    name: str, conf: Any, ovsdb: ovsdb_connection.Ovsdb | None
) -> Binder | None:
    value = f"[vhpc_agent]binders = '{name}'"
    make = plugins.load(NAMESPACE, name, value, 'no such binder')
    binder: Binder | None = make(conf, ovsdb)
    return binder
