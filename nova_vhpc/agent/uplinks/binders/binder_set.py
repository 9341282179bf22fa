# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""All binders of this host: loading, choosing, restoring."""

from collections.abc import Callable, Sequence
from typing import Any

import libvirt
from stevedore import named

from nova_vhpc.agent import errors, plugins
from nova_vhpc.agent.libvirt import interfaces
from nova_vhpc.agent.ovsdb import connection as ovsdb_connection
from nova_vhpc.agent.uplinks import claims
from nova_vhpc.agent.uplinks.binders import base

NAMESPACE = 'nova_vhpc.binders'


class BinderSet:
    """The binders that are in use.

    :param binders: in order of preference.
    """

    def __init__(self, binders: Sequence[base.Binder]) -> None:
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
        networks: base.Networks | None = None,
    ) -> base.Binder | None:
        """Return the first binder that serves a guest's NICs and claims.

        :param uuid: UUID of the guest.
        :param uplinks: the uplinks that the server has claimed.
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
) -> base.Binder | None:
    value = f"[vhpc_agent]binders = '{name}'"
    make = plugins.load(NAMESPACE, name, value, 'no such binder')
    binder: base.Binder | None = make(conf, ovsdb)
    return binder
