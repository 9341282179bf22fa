# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Restore what binders have changed, for ``nova-vhpc-agent --restore``."""

import logging
from collections.abc import Callable
from typing import Any

from nova_vhpc.agent import errors
from nova_vhpc.agent.ovsdb import connection
from nova_vhpc.agent.uplinks.binders import base

LOG = logging.getLogger(__name__)

OVSDB_SECONDS = 5.0
"""Longest time to wait for Open vSwitch, if there is anything to restore."""


class NicRestorer:
    """Restores the NICs of all servers of this host.

    Every installed binder takes part, also if ``bind_uplinks`` or the binder
    was turned off since. Options that are invalid are reported, and keep
    nothing else from being restored.

    :param conf: with the groups ``vhpc_agent`` and ``vhpc_topology``.
    """

    def __init__(self, conf: Any) -> None:
        self._problems: list[str] = []
        self._ovsdb: connection.Ovsdb | None = None
        try:
            self._ovsdb = connection.make_ovsdb(conf)
        except errors.ConfigError as error:
            self._problems.append(str(error))
        self._binders, problems = base.load_all(conf, self._ovsdb)
        self._restored: set[str] = set()
        self._has_failed = False
        if not self._binders.records() and not problems:
            # Nothing is left on the host: no option matters.
            self._problems.clear()
        self._problems += problems

    def restore(self, libvirt: Callable[[], Any]) -> dict[str, str]:
        """Restore all NICs that are not restored yet.

        :param libvirt: returns libvirt's connection, or raises libvirtError:
            not every binder needs it.
        :returns: reasons for failures, by UUID of the server, or what else
            has failed.
        """
        before = self._binders.records()
        if self._ovsdb is not None and before:
            self._ovsdb.start()
            if not self._ovsdb.connected:
                self._ovsdb.wait(OVSDB_SECONDS)
        failures = self._binders.restore_all(libvirt)
        self._restored |= before.keys() - self._binders.records().keys()
        failures.update(
            (f'binder {number}', problem)
            for number, problem in enumerate(self._problems, 1)
        )
        self._has_failed = bool(failures)
        return failures

    def report(self) -> None:
        """Log what was restored; and why Open vSwitch was not, if so."""
        if self._restored:
            LOG.info('NICs of %d servers are restored', len(self._restored))
        ovsdb = self._ovsdb
        # Not asked at all if there was nothing to restore.
        if self._has_failed and ovsdb is not None and ovsdb.problem():
            LOG.error(
                'ovsdb-server at %s does not answer, so that NICs in Open '
                'vSwitch are left as they are: start it, or correct '
                '[vhpc_topology] ovsdb_connection, then run nova-vhpc-agent '
                '--restore again',
                ovsdb.remote,
            )

    def stop(self) -> None:
        """End the connection to Open vSwitch."""
        if self._ovsdb is not None:
            self._ovsdb.stop()
