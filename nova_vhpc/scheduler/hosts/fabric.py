# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Switch and rack of hosts, from the metadata of their aggregates."""

from collections.abc import Iterable, Mapping
from typing import Any

from oslo_log import log as logging

from nova_vhpc.scheduler.planner.model import one_of

LOG = logging.getLogger(__name__)

# Pairs of conflicting names that this process has logged.
_logged: set[tuple[str, frozenset[str]]] = set()


class Fabric:
    """Which switch and rack a host is on, by its aggregates' metadata.

    One object serves one request. Each aggregate is read once, because
    thousands of hosts share it and it lists all of them.

    :param switch_key: metadata key that names the switch.
    :param rack_key: metadata key that names the rack.
    """

    def __init__(self, switch_key: str, rack_key: str) -> None:
        self._keys = (switch_key, rack_key)
        self._read_aggregates: set[int] = set()
        self._by_host: dict[str, tuple[str | None, str | None]] = {}

    def place(self, state: Any) -> tuple[str | None, str | None]:
        """Return switch and rack of a host state."""
        switch = rack = None
        for aggregate in state.aggregates:
            # Nova keeps one object per aggregate, shared by all hosts.
            if id(aggregate) not in self._read_aggregates:
                self._read(aggregate)
            switch = one_of(switch, aggregate.metadata.get(self._keys[0]))
            rack = one_of(rack, aggregate.metadata.get(self._keys[1]))
        return switch, rack

    def place_of(self, host: str) -> tuple[str | None, str | None]:
        """Return switch and rack of a host that did not pass the filters."""
        return self._by_host.get(host, (None, None))

    def racks_missing(self, names: Iterable[str]) -> set[str]:
        """Return hosts of unknown rack; none if no rack is known at all."""
        if not any(rack for _, rack in self._by_host.values()):
            return set()
        return {name for name in names if self.place_of(name)[1] is None}

    def add_racks(self, racks: Mapping[str, str]) -> None:
        """Take note of the racks of hosts that did not pass the filters.

        :param racks: by host.
        """
        for host, rack in racks.items():
            self._by_host[host] = (self.place_of(host)[0], rack)

    @property
    def rack_key(self) -> str:
        """Metadata key that names the rack."""
        return self._keys[1]

    def _read(self, aggregate: Any) -> None:
        """Take note of switch and rack of all hosts of an aggregate."""
        metadata = aggregate.metadata
        place = (metadata.get(self._keys[0]), metadata.get(self._keys[1]))
        self._read_aggregates.add(id(aggregate))
        if place != (None, None):
            for host in aggregate.hosts:
                switch, rack = self.place_of(host)
                self._log_conflict(host, self._keys[0], switch, place[0])
                self._log_conflict(host, self._keys[1], rack, place[1])
                self._by_host[host] = (
                    one_of(switch, place[0]),
                    one_of(rack, place[1]),
                )

    def _log_conflict(
        self, host: str, key: str, one: str | None, other: str | None
    ) -> None:
        """Log, once, that aggregates give a host two different names."""
        if not one or not other or one == other:
            return
        conflict = (key, frozenset((one, other)))
        if conflict not in _logged:
            _logged.add(conflict)
            LOG.warning(
                'Aggregates of host %s, for one, have two values of %s: %s; '
                'the first counts',
                host,
                key,
                ', '.join(sorted((one, other))),
            )
