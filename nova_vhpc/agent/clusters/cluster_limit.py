# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Limits the clusters that one project can name on this host."""

import logging
from collections.abc import Container, Iterable

from nova_vhpc.agent.clusters import nova

LOG = logging.getLogger(__name__)

MAX_NAMED_CLUSTERS = 32
"""Most clusters that one project can name on one host whose phases are
exchanged with other hosts. A tenant could give each of its servers a cluster
of its own; Nova's quota limits server groups only."""


class ClusterLimit:
    """Chooses the clusters whose phases are exchanged with other hosts.

    :ivar detail: projects with more clusters than that; empty if there are
        none.
    """

    def __init__(self) -> None:
        self.detail = ''

    def choose(
        self, named: Iterable[str], exchanged: Container[str]
    ) -> set[str]:
        """Return the clusters whose phases are exchanged.

        :param named: all clusters with members on this host.
        :param exchanged: clusters that are exchanged already; they keep
            their place.
        """
        chosen: set[str] = set()
        counts: dict[str, int] = {}
        for cluster in sorted(
            named, key=lambda name: (name not in exchanged, name)
        ):
            project, slash, _ = cluster.partition('/')
            if slash:
                counts[project] = counts.get(project, 0) + 1
            if not slash or counts[project] <= MAX_NAMED_CLUSTERS:
                chosen.add(cluster)
        self._report(
            sorted(
                project
                for project, count in counts.items()
                if count > MAX_NAMED_CLUSTERS
            )
        )
        return chosen

    def _report(self, projects: list[str]) -> None:
        detail = ''
        if projects:
            detail = (
                f'projects {", ".join(projects)} have more than '
                f'{MAX_NAMED_CLUSTERS} clusters on this host by '
                f'{nova.METADATA_KEY}; each host decides by itself '
                'about the others'
            )
        if detail != self.detail:
            self.detail = detail
            if detail:
                LOG.warning('Phases are not exchanged: %s', detail)
