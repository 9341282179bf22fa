# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Asks Nova where the servers of a cluster are."""

import time
import uuid
from collections.abc import Callable, Mapping

from oslo_config import cfg

from nova_vhpc.agent.clusters import nova
from nova_vhpc.clients import credentials
from nova_vhpc.conf import nova_api

LIFETIME_S = 60.0
"""How long Nova's answer is used, in seconds: it costs a call for each
server of a group, and servers seldom move."""


class NovaMembers:
    """Knows the hosts of a cluster's servers.

    :param conf: with the group ``vhpc_nova``, whose credentials the agents
        use.
    :param cluster: ID of the cluster.
    :param clock: returns a time in seconds.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        cluster: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._conf = conf
        self._cluster = cluster
        self._clock = clock
        self._servers = nova.NovaServers(conf, '')
        self._placed: Mapping[str, str | None] = {}
        self._asked_s: float | None = None
        self._remarks: list[str] = []

    def find(self) -> tuple[Mapping[str, str | None], list[str]]:
        """Return the host of each member, and why it is not known.

        :returns: hosts by UUID of the server, None for a server without one;
            a sentence on what is not known.
        """
        now_s = self._clock()
        if self._asked_s is None or now_s - self._asked_s >= LIFETIME_S:
            self._asked_s = now_s
            self._remarks = self._ask()
        return self._placed, list(self._remarks)

    def _ask(self) -> list[str]:
        if '/' not in self._cluster and not _is_uuid(self._cluster):
            return [
                'Shown are the hosts that agents hear from: Nova knows no '
                f'cluster {self._cluster}, which is neither a UUID nor '
                'PROJECT/NAME.'
            ]
        if not credentials.given(self._conf, nova_api.GROUP):
            return [
                'Shown are the hosts that agents hear from: [vhpc_nova] has '
                'no credentials to ask Nova for all of them.'
            ]
        try:
            self._placed = self._servers.members_of(self._cluster)
        except nova.NovaError as error:
            return [
                'Shown are the hosts that agents hear from, or Nova named '
                f'before: {error}'
            ]
        return []


def _is_uuid(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True
