# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""Names of clusters and hosts: which are accepted, and how many."""

import logging
from collections.abc import Callable, Container, Iterable

LOG = logging.getLogger(__name__)

MAX_NAME = 512
"""Longest accepted name, in characters: names are kept as long as a
statement, so they must not fill the memory."""

RULE = f'a name of 1 to {MAX_NAME} printable characters'

MAX_CLUSTERS = 32
"""Most server groups, and most clusters by name, of one project on one host
whose phases and slots are exchanged with other hosts. A tenant can name as
many as it has servers; operators raise quotas of server groups."""


def is_name(text: str) -> bool:
    """Return whether a text can be a name.

    Others could not be logged or shown, such as lone halves of surrogate
    pairs, which JSON can escape.
    """
    return 0 < len(text) <= MAX_NAME and text.isprintable()


class ClusterLimit:
    """Chooses the clusters that are exchanged with other hosts.

    :param project_of: returns the project of a server group; None for
        another cluster.
    :ivar detail: projects that have too many; empty if there are none.
    """

    def __init__(
        self, project_of: Callable[[str], str | None] = lambda cluster: None
    ) -> None:
        self._project_of = project_of
        self.detail = ''

    def choose(
        self, clusters: Iterable[str], exchanged: Container[str]
    ) -> set[str]:
        """Return the clusters that are exchanged.

        :param clusters: all clusters with members on this host.
        :param exchanged: clusters that are exchanged already; they keep
            their place.
        """
        chosen: set[str] = set()
        counts: dict[tuple[str, str], int] = {}
        for cluster in sorted(
            clusters, key=lambda name: (name not in exchanged, name)
        ):
            kind, project = 'server groups', self._project_of(cluster)
            if project is None and '/' in cluster:
                kind, project = 'vhpc:cluster', cluster.partition('/')[0]
            if project is not None:
                count = counts.get((project, kind), 0) + 1
                counts[project, kind] = count
                if count > MAX_CLUSTERS:
                    continue
            chosen.add(cluster)
        self._report(
            sorted(
                key for key, count in counts.items() if count > MAX_CLUSTERS
            )
        )
        return chosen

    def _report(self, crowded: list[tuple[str, str]]) -> None:
        detail = ''
        if crowded:
            projects = ', '.join(
                f'{project} (by {kind})' for project, kind in crowded
            )
            detail = (
                f'projects {projects} have more than {MAX_CLUSTERS} clusters '
                'on this host; each host decides by itself about the others'
            )
        if detail and detail != self.detail:
            LOG.warning('Phases are not exchanged: %s', detail)
        self.detail = detail
