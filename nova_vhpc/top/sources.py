# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Where ``nova-vhpc-top`` gets status documents from."""

import dataclasses
import json
import pathlib
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from oslo_config import cfg

from nova_vhpc.agent import errors
from nova_vhpc.agent.clusters import nova
from nova_vhpc.agent.daemon import status_socket
from nova_vhpc.clients import credentials
from nova_vhpc.conf import nova_api

MEMBERS_LIFETIME_S = 60.0
"""How long Nova's answer is used, in seconds: it costs a call for each
server of a group, and servers seldom move."""

MOST_ROUNDS = 5
"""How often answers may name hosts that were not asked yet."""

Call = Callable[[Collection[str]], tuple[Mapping[str, Any], Mapping[str, str]]]
"""Asks the agents of hosts for their status documents; returns answers, and
reasons for failures, by host."""

Members = Mapping[str, str | None]
"""Hosts of the servers of a cluster, by UUID; None for one without a host."""


class SourceError(Exception):
    """Nothing can be shown; the text says why, in one line."""


@dataclasses.dataclass(frozen=True, slots=True)
class Answers:
    """What agents answered at one time.

    :ivar documents: status documents by host.
    :ivar missing: why other hosts did not answer, by host.
    :ivar remarks: what else is not known, a sentence each.
    :ivar cluster: ID of the only cluster that was asked for; None for all.
    :ivar many: whether several hosts were asked for; otherwise JSON is the
        one document itself.
    """

    documents: Mapping[str, Any]
    missing: Mapping[str, str] = dataclasses.field(default_factory=dict)
    remarks: Sequence[str] = ()
    cluster: str | None = None
    many: bool = False

    def as_json(self) -> Any:
        """Return the answers as a value that JSON has."""
        if not self.many:
            (document,) = self.documents.values()
            return document
        return {
            'cluster': self.cluster,
            'hosts': dict(self.documents),
            'missing': dict(self.missing),
            'remarks': list(self.remarks),
        }


Fetch = Callable[[], Answers]
"""Returns what agents answer now, or raises :class:`SourceError`."""


def read_socket(path: str) -> Answers:
    """Ask the agent of this host.

    :param path: path of its status socket.
    :raises SourceError: no agent answers.
    """
    try:
        document = status_socket.fetch(path)
    except (OSError, ValueError) as error:
        raise SourceError(
            f'{path}: {error}; is nova-vhpc-agent running, and may you open '
            'its socket?'
        ) from None
    return Answers({path: document})


def read_file(path: str) -> Answers:
    """Read what ``--once --json`` printed before.

    :raises SourceError: the file cannot be read, or holds something else.
    """
    try:
        content = json.loads(pathlib.Path(path).read_text('utf-8'))
    except (OSError, ValueError, RecursionError) as error:
        raise SourceError(
            f'{path}: {error}; it must hold what nova-vhpc-top --once --json '
            'has printed'
        ) from None
    if not isinstance(content, dict) or 'hosts' not in content:
        return Answers({path: content})
    try:
        return Answers(
            dict(content['hosts']),
            {str(k): str(v) for k, v in content['missing'].items()},
            [str(remark) for remark in content['remarks']],
            content['cluster'],
            True,
        )
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise SourceError(
            f'{path}: not what nova-vhpc-top --once --json prints '
            f'({type(error).__name__}: {error})'
        ) from None


def ask_hosts(
    call: Call, hosts: Sequence[str], cluster: str | None = None
) -> Answers:
    """Ask the agents of named hosts over the message bus.

    :param cluster: ID of the only cluster to show; None for all.
    :raises SourceError: none answers.
    """
    documents, missing = call(list(dict.fromkeys(hosts)))
    if not documents:
        raise SourceError(_reasons(missing))
    return Answers(documents, missing, (), cluster, True)


def ask_cluster(
    call: Call,
    cluster: str,
    find_members: Callable[[], tuple[Members, list[str]]],
    here: Callable[[], Any],
) -> Answers:
    """Ask the agents of all hosts of a cluster over the message bus.

    Nova says where its servers are. Hosts that other agents hear of the
    cluster from are asked, too: they are all that is known if Nova cannot be
    asked, or does not know the cluster. Agents send only what changes, so
    that those need not be all hosts.

    :param cluster: ID of the cluster.
    :param find_members: see :meth:`NovaMembers.find`.
    :param here: returns the status document of this host's agent; None if
        none runs here.
    :raises SourceError: no host of the cluster is known, or none answers.
    """
    placed, remarks = find_members()
    documents: dict[str, Any] = {}
    missing: dict[str, str] = {}
    hosts = {host for host in placed.values() if host is not None}
    hosts |= hosts_of(here(), cluster)
    if not hosts:
        raise SourceError(
            ' '.join(
                [
                    f'no host of cluster {cluster} is known: no agent here '
                    'has a server of it. Name its hosts by --host.',
                    *remarks,
                ]
            )
        )
    for _ in range(MOST_ROUNDS):
        answers, failures = call(sorted(hosts))
        documents |= answers
        missing |= failures
        hosts = set()
        for document in answers.values():
            hosts |= hosts_of(document, cluster)
        hosts -= {*documents, *missing}
        if not hosts:
            break
    if not documents:
        raise SourceError(_reasons(missing))
    remarks += _unmanaged(placed, documents)
    remarks += _left_behind(placed, documents, cluster)
    return Answers(documents, missing, remarks, cluster, True)


class NovaMembers:
    """Knows the hosts of a cluster's servers from Nova.

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
        self._placed: Members = {}
        self._asked_s: float | None = None
        self._remarks: list[str] = []

    def find(self) -> tuple[Members, list[str]]:
        """Return the host of each member, and a sentence on what is not
        known."""
        now_s = self._clock()
        if (
            self._asked_s is None
            or now_s - self._asked_s >= MEMBERS_LIFETIME_S
        ):
            self._asked_s = now_s
            problem = self._ask()
            self._remarks = (
                [f'Shown are the hosts that {problem}'] if problem else []
            )
        return self._placed, list(self._remarks)

    def _ask(self) -> str:
        if '/' not in self._cluster and not _is_uuid(self._cluster):
            return (
                f'agents hear from: Nova knows no cluster {self._cluster}, '
                'which is neither a UUID nor PROJECT/NAME.'
            )
        if not credentials.given(self._conf, nova_api.GROUP):
            return (
                'agents hear from: [vhpc_nova] has no credentials to ask Nova '
                'for all of them.'
            )
        try:
            self._placed = self._servers.members_of(self._cluster)
        except nova.NovaError as error:
            return f'agents hear from, or Nova named before: {error}'
        return ''


def hosts_of(document: Any, cluster: str) -> set[str]:
    """Return the hosts that an agent knows of a cluster, its own included.

    :param document: status document of the agent; what cannot be read names
        no host.
    """
    hosts: set[str] = set()
    try:
        peers = document.get('peers') or {}
        for part in (peers, peers.get('slots') or {}):
            heard = (part.get('clusters') or {}).get(cluster) or {}
            hosts |= set(map(str, heard.get('hosts') or ()))
        if any(vm.get('cluster') == cluster for vm in document['vms']):
            hosts.add(str(document['agent']['host']))
    except errors.UNREADABLE:
        return set()
    return hosts


def _left_behind(
    placed: Members, documents: Mapping[str, Any], cluster: str
) -> list[str]:
    """Return a sentence on each server that an agent of another host has,
    too, as after an evacuation of a host that still runs."""
    return [
        f'{server} is on {home}, and the agent of {host} has it, too: it is '
        'being migrated, or was evacuated from there'
        for host, document in sorted(documents.items())
        for server in sorted(_uuids(document, cluster))
        if (home := placed.get(server)) not in (None, host)
    ]


def _unmanaged(placed: Members, documents: Mapping[str, Any]) -> list[str]:
    """Return a sentence on each server that its host's agent does not have."""
    sentences = []
    for server, host in sorted(placed.items()):
        if host is None:
            sentences.append(f'Nova tells no host of {server}')
        elif host in documents and server not in _uuids(documents[host]):
            sentences.append(
                f'{server} is on {host}, whose agent does not manage it: does '
                'it run, and has its flavor vhpc: extra specs?'
            )
    return sentences


def _uuids(document: Any, cluster: str | None = None) -> set[str]:
    """Return the servers of an agent, or those of one cluster."""
    try:
        return {
            str(vm['uuid'])
            for vm in document['vms']
            if cluster is None or vm.get('cluster') == cluster
        }
    except errors.UNREADABLE:
        # Said as the answer of another version.
        return set()


def _reasons(missing: Mapping[str, str]) -> str:
    return '; '.join(dict.fromkeys(missing.values())) or 'no host is named'


def _is_uuid(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True
