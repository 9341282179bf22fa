# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Says why Nova does not list servers that run on this host. Pure."""

import dataclasses
from collections.abc import Callable


@dataclasses.dataclass(frozen=True, slots=True)
class Unlisted:
    """Servers that run here and that Nova's answer does not list.

    Nova answers with an empty list, and reports success, for a host that it
    does not know and for a cell whose database is away.

    :ivar host: the host of which Nova was asked.
    :ivar servers: the servers that Nova does not list.
    :ivar running: number of servers that run here.
    :ivar was_listed: whether an earlier answer had any of the servers.
    """

    host: str
    servers: frozenset[str]
    running: int
    was_listed: bool

    def reason(self, host_of: Callable[[str], str | None]) -> str:
        """Return what is wrong and what to do.

        :param host_of: returns the host that Nova has a server on, or None.
        """
        count = len(self.servers)
        if self.was_listed:
            return (
                f'Nova does not list {count} of {self.running} servers that '
                "run here; is their cell's database away?"
            )
        server = min(self.servers)
        host = host_of(server)
        if count < self.running or host == self.host:
            where = '' if host is None else f' (it has {server} on {host})'
            return (
                f'Nova does not list {count} of {self.running} servers that '
                f'run here{where}; were they moved to another host?'
            )
        question = (
            f'Nova names none of the {count} servers that run here among the '
            f'servers of host {self.host}'
        )
        if host is not None:
            return (
                f'{question}: it has {server} on {host}; set [vhpc_agent]host '
                f"to that name, which is nova-compute's [DEFAULT]host"
            )
        return (
            f"{question}; is [vhpc_agent]host what nova-compute's "
            '[DEFAULT]host is (openstack compute service list)?'
        )
