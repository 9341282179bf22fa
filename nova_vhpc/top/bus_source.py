# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Asks the agents of several hosts over the message bus."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Protocol

from nova_vhpc.agent import errors
from nova_vhpc.top.sources import Answers, SourceError

Call = Callable[[Collection[str]], tuple[Mapping[str, Any], Mapping[str, str]]]
"""Asks the agents of hosts for their status documents; returns answers, and
reasons for failures, by host."""

MOST_ROUNDS = 5
"""How often answers may name hosts that were not asked yet."""


class Members(Protocol):
    """Knows where the servers of a cluster are."""

    def find(self) -> tuple[Mapping[str, str | None], list[str]]:
        """Return the host of each server, and why it is not known."""


class BusSource:
    """Asks the agents of named hosts.

    :param call: asks agents.
    :param hosts: names of the hosts.
    :param cluster: ID of the only cluster to show; None for all.
    """

    def __init__(
        self, call: Call, hosts: Iterable[str], cluster: str | None = None
    ) -> None:
        self._call = call
        self._hosts = list(dict.fromkeys(hosts))
        self._cluster = cluster

    def fetch(self) -> Answers:
        """Return what the agents answer now.

        :raises SourceError: none answers.
        """
        documents, missing = self._call(self._hosts)
        if not documents:
            raise SourceError(_reasons(missing))
        return Answers(documents, missing, (), self._cluster, True)


class ClusterSource:
    """Asks the agents of all hosts of a cluster.

    Nova says where its servers are. Hosts that other agents hear of the
    cluster from are asked, too: they are all that is known if Nova cannot be
    asked, or does not know the cluster. Agents send only what changes, so
    that those need not be all hosts.

    :param call: asks agents.
    :param cluster: ID of the cluster.
    :param members: asks Nova.
    :param here: returns the status document of this host's agent; None if
        none runs here.
    """

    def __init__(
        self,
        call: Call,
        cluster: str,
        members: Members,
        here: Callable[[], Any],
    ) -> None:
        self._call = call
        self._cluster = cluster
        self._members = members
        self._here = here

    def fetch(self) -> Answers:
        """Return what the agents answer now.

        :raises SourceError: no host of the cluster is known, or none answers.
        """
        placed, remarks = self._members.find()
        documents: dict[str, Any] = {}
        missing: dict[str, str] = {}
        hosts = {host for host in placed.values() if host is not None}
        hosts |= hosts_of(self._here(), self._cluster)
        if not hosts:
            raise SourceError(self._unknown(remarks))
        for _ in range(MOST_ROUNDS):
            answers, failures = self._call(sorted(hosts))
            documents |= answers
            missing |= failures
            hosts = set()
            for document in answers.values():
                hosts |= hosts_of(document, self._cluster)
            hosts -= {*documents, *missing}
            if not hosts:
                break
        if not documents:
            raise SourceError(_reasons(missing))
        remarks += _unmanaged(placed, documents)
        remarks += self._left_behind(placed, documents)
        return Answers(documents, missing, remarks, self._cluster, True)

    def _left_behind(
        self, placed: Mapping[str, str | None], documents: Mapping[str, Any]
    ) -> list[str]:
        """Return a sentence on each server that an agent of another host has,
        too, as after an evacuation of a host that still runs."""
        return [
            f'{uuid} is on {home}, and the agent of {host} has it, too: it is '
            'being migrated, or was evacuated from there'
            for host, document in sorted(documents.items())
            for uuid in sorted(_uuids(document, self._cluster))
            if (home := placed.get(uuid)) not in (None, host)
        ]

    def _unknown(self, remarks: list[str]) -> str:
        return ' '.join(
            [
                f'no host of cluster {self._cluster} is known: no agent here '
                'has a server of it. Name its hosts by --host.',
                *remarks,
            ]
        )


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


def _unmanaged(
    placed: Mapping[str, str | None], documents: Mapping[str, Any]
) -> list[str]:
    """Return a sentence on each server that its host's agent does not have."""
    sentences = []
    for uuid, host in sorted(placed.items()):
        if host is None:
            sentences.append(f'Nova tells no host of {uuid}')
        elif host in documents and uuid not in _uuids(documents[host]):
            sentences.append(
                f'{uuid} is on {host}, whose agent does not manage it: does '
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
