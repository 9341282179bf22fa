# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Which virtual cluster a server of this host belongs to.

Nova's API is the source; a groups file takes precedence over it. While Nova is
away, its last answer stays in force, and its age is shown.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import yaml
from oslo_config import cfg

from nova_vhpc.agent import errors, periodic
from nova_vhpc.agent.clusters import names, nova
from nova_vhpc.clients import credentials

LOG = logging.getLogger(__name__)

_MAX_BACKOFF_S = 120.0
_FILE_INTERVAL_S = 5.0
_MAX_QUERIES_PER_SERVER = 5
_MAX_UNKNOWN_SERVERS = 1000
_TICK_S = 1.0
"""Upper limit of the duration of a tick, which looks up every server here."""
_MAX_PERIOD_S = 30.0
"""A server that no tick has looked up for so long does not run here: control
periods are 10 seconds at most."""


class Groups:
    """Knows the virtual cluster of every server of this host.

    Queries Nova in a thread; lookups are answered from memory.

    :param conf: with the group ``vhpc_nova``.
    :param host: name of this host as Nova knows it (``[DEFAULT] host``).
    :param period_s: control period, in seconds; every tick looks up all
        servers that run here.
    """

    def __init__(
        self, conf: cfg.ConfigOpts, host: str, period_s: float = 0.0
    ) -> None:
        self._conf = conf
        self._options = conf.vhpc_nova
        self._host = host
        # While a tick is under way, the last lookup of some servers is that
        # of the tick before.
        self._round_s = period_s + _TICK_S
        self._lock = threading.Lock()
        self._nova_thread = periodic.PeriodicThread(
            'vhpc-groups',
            self._query,
            lambda: float(self._options.poll_interval),
            _MAX_BACKOFF_S,
            lambda: float(self._options.min_interval),
        )
        self._file_thread = periodic.PeriodicThread(
            'vhpc-groups-file',
            self._read_file,
            lambda: _FILE_INTERVAL_S,
            wait_first=True,
        )
        self._nova = nova.NovaServers(conf, host)
        # Replaced as a whole, because every tick looks up every server and
        # must not wait for a lock.
        self._answer = nova.Answer()
        self._missing: frozenset[str] = frozenset()
        self._unlisted: frozenset[str] = frozenset()
        self._queries: dict[str, int] = {}
        self._hosts: Mapping[str, frozenset[str]] = {}
        self._hosts_wanted: set[str] = set()
        self._looked_up_s: dict[str, float] = {}
        self._file_clusters: Mapping[str, str] = {}
        self._file_stamp: tuple[float, int] | None = None
        self._file_problem = ''
        self._state = 'off'
        self._detail = ''
        self._answered_s: float | None = None

    @property
    def uses_nova(self) -> bool:
        """Whether credentials for the Nova API are configured."""
        return credentials.given(self._conf, 'vhpc_nova')

    def start(self) -> None:
        """Read the groups file, and start querying Nova, as configured."""
        if self._nova_thread.started or self._file_thread.started:
            return
        if self._options.groups_file:
            self._read_file()
            self._enter('file', '')
            self._file_thread.start()
        if self.uses_nova:
            self._enter('starting', '')
            self._nova_thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stop querying Nova. The known clusters are kept."""
        self._file_thread.stop(timeout_s)
        self._nova_thread.stop(timeout_s)

    def cluster_of(
        self,
        server_uuid: str,
        flavor_cluster: str | None = None,
        project: str | None = None,
    ) -> str | None:
        """Return the ID of a server's virtual cluster; None without one.

        Never blocks. A server that Nova's last answer lacks causes a query
        soon.

        :param flavor_cluster: ``vhpc:cluster`` of the flavor in the domain
            XML, used until Nova's answer has the server.
        :param project: the server's project in the domain XML.
        """
        answer = self._answer
        is_known = server_uuid in answer.servers
        self._looked_up_s[server_uuid] = time.monotonic()
        file_cluster = self._file_clusters.get(server_uuid)
        if file_cluster is not None:
            return file_cluster
        if not is_known:
            self._query_soon(server_uuid)
            if flavor_cluster is not None:
                return nova.scoped(flavor_cluster, project)
        return answer.clusters.get(server_uuid)

    def project_of(self, cluster: str) -> str | None:
        """Return the project of a server group; None for another cluster."""
        return self._answer.projects.get(cluster)

    def hosts_of(self, cluster: str) -> Collection[str]:
        """Return the hosts that have members of a cluster, by Nova.

        Never blocks: none are known until Nova has answered, which is asked
        soon.
        """
        self._hosts_wanted.add(cluster)
        hosts = self._hosts.get(cluster)
        if hosts is None and self.uses_nova:
            self._nova_thread.wake()
        return hosts or ()

    @property
    def migrating(self) -> frozenset[str]:
        """UUIDs of servers that, by Nova's answer, migrate or soon will."""
        return self._answer.migrating

    def status(self) -> dict[str, Any]:
        """Return what is known and how old it is, for the status socket.

        ``file_problem`` says why the groups file cannot be used.
        """
        running = self._running_here()
        with self._lock:
            answered_s = self._answered_s
            merged = {**self._answer.clusters, **self._file_clusters}
            state, detail = self._state, self._detail
        counts: dict[str, int] = {}
        for cluster in merged.values():
            counts[cluster] = counts.get(cluster, 0) + 1
        return {
            'state': state,
            'detail': detail,
            'age_s': None
            if answered_s is None
            else round(time.monotonic() - answered_s, 1),
            'servers': len(merged),
            'running': len(running),
            'clusters': counts,
            'file_problem': self._file_problem,
        }

    def _query_soon(self, server_uuid: str) -> None:
        """Query Nova soon for a server that its last answer lacks.

        At most ``_MAX_QUERIES_PER_SERVER`` queries are made for one server.
        """
        queries = self._queries.get(server_uuid, 0)
        if self.uses_nova and queries < _MAX_QUERIES_PER_SERVER:
            self._nova_thread.wake()
            self._queries.setdefault(server_uuid, 0)

    def refresh(self) -> None:
        """Query Nova once, in the caller's thread.

        :raises NovaError: Nova is away or refuses the query.
        """
        running = self._running_here()
        answer, self._missing = self._nova.fetch().keep_missing(
            self._answer, running
        )
        self._unlisted = running - answer.listed
        with self._lock:
            self._answer = answer
            if not self._missing:
                self._answered_s = time.monotonic()
        for server in list(self._queries):
            if (
                server in answer.servers
                or len(self._queries) > _MAX_UNKNOWN_SERVERS
            ):
                self._queries.pop(server, None)
            else:
                self._queries[server] += 1
        self._read_hosts()

    def _read_hosts(self) -> None:
        """Read the hosts of the clusters for which they are wanted."""
        wanted, self._hosts_wanted = self._hosts_wanted, set()
        hosts: dict[str, frozenset[str]] = {}
        for cluster in wanted.intersection(self._answer.clusters.values()):
            with contextlib.suppress(nova.NovaError):
                members = self._nova.members_of(cluster)
                hosts[cluster] = frozenset(filter(None, members.values()))
        self._hosts = hosts

    def _running_here(self) -> frozenset[str]:
        """Return the servers that the last tick has looked up."""
        # Copied in one step, because ticks add to it meanwhile.
        looked_up_s = self._looked_up_s.copy()
        since_s = max(
            max(looked_up_s.values(), default=0.0) - self._round_s,
            time.monotonic() - _MAX_PERIOD_S,
        )
        for server in looked_up_s:
            if looked_up_s[server] < since_s:
                self._looked_up_s.pop(server, None)
        return frozenset(
            server for server in looked_up_s if looked_up_s[server] >= since_s
        )

    def _query(self) -> None:
        """Query Nova once, and log a change of state.

        :raises RetryLater: Nova is away or refuses the query.
        """
        unlisted_before = self._unlisted
        try:
            self.refresh()
        except nova.NovaError as error:
            self._nova.disconnect()
            if self._enter('nova-away', str(error)):
                LOG.warning(
                    'Nova does not answer; the last known groups of this '
                    "host's servers stay in force: %s",
                    error,
                )
            raise periodic.RetryLater from error
        except Exception as error:
            self._enter('failed', repr(error))
            raise
        # A server that is missing only once may just have been deleted.
        servers = unlisted_before & self._unlisted
        if servers:
            detail = nova.Unlisted(
                self._host,
                servers,
                len(self._running_here() | servers),
                bool(servers & self._missing),
            ).reason(self._nova.host_of)
            if self._enter('partial', detail):
                LOG.warning(
                    'The groups of some servers are unknown, or the last '
                    'known ones: %s',
                    detail,
                )
        elif self._enter('fresh', ''):
            LOG.info(
                'Read the groups of this host from Nova: %d servers in %d '
                'virtual clusters',
                len(self._answer.clusters),
                len(set(self._answer.clusters.values())),
            )

    def _read_file(self) -> None:
        """Read the groups file if it changed; log once if it is invalid."""
        name = self._options.groups_file
        if not name:
            return
        try:
            stat = Path(name).stat()
            stamp = (stat.st_mtime, stat.st_size)
            if stamp == self._file_stamp:
                return
            file_clusters = read_file(
                yaml.safe_load(Path(name).read_text('utf-8'))
            )
        except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
            self._file_problem = (
                f'[vhpc_nova] groups_file {name} cannot be used; the last '
                f'known groups stay in force: {errors.one_line(error)}'
            )
            if self._file_stamp != (0.0, 0):
                LOG.warning('%s', self._file_problem)
            self._file_stamp = (0.0, 0)
            return
        self._file_stamp = stamp
        self._file_problem = ''
        LOG.info('Read %d servers from %s', len(file_clusters), name)
        with self._lock:
            self._file_clusters = file_clusters

    def _enter(self, state: str, detail: str) -> bool:
        """Set state and detail.

        :returns: whether the state changed.
        """
        with self._lock:
            changed = state != self._state
            self._state, self._detail = state, detail
        return changed


def read_file(content: Any) -> dict[str, str]:
    """Return the virtual cluster by server from a groups file.

    :param content: content of the file, parsed as YAML.
    :raises ValueError: naming the invalid part.
    """
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ValueError('it must map cluster names to lists of servers')
    cluster_by_server: dict[str, str] = {}
    for cluster, servers in content.items():
        if not names.is_name(str(cluster)):
            raise ValueError(f'{str(cluster)[:32]!r} is not {names.RULE}')
        if not isinstance(servers, list):
            raise ValueError(f"'{cluster}' must be a list of server uuids")
        for server in servers:
            if not isinstance(server, str):
                # Not printed: YAML's aliases can make it endless.
                raise ValueError(f"'{cluster}' has a server that is no text")
            first_cluster = cluster_by_server.setdefault(server, str(cluster))
            if first_cluster != str(cluster):
                raise ValueError(
                    f'server {server!r} is in {first_cluster} and in {cluster}'
                )
    return cluster_by_server
