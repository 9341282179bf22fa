# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""The publish worker of a dry run: it reads and logs only."""

import socket
from typing import Any

from nova_vhpc.agent.ovsdb import connection
from nova_vhpc.agent.uplinks import neutron_agents, publish_worker
from nova_vhpc.placement import publisher
from nova_vhpc.topology import model


class DryPublishWorker(publish_worker.PublishWorker):
    """Discovers uplinks and reads Placement, but publishes nothing."""

    DONE = 'dry-run'
    MESSAGE = (
        'Dry run: %d uplinks of compute node %s would be published to '
        'Placement: %s'
    )

    def status(self) -> dict[str, Any]:
        """Return what was discovered, for the status socket.

        The age is None, because nothing is published.
        """
        return super().status() | {'age_s': None}

    def _publish(
        self, topology: model.HostTopology, stamp: int
    ) -> publisher.Published:
        node = self._make_publisher().node()
        return publisher.Published(node, (), (), 0)


def make_publish_worker(
    conf: Any, host: str, ovsdb: connection.Ovsdb | None = None
) -> publish_worker.PublishWorker:
    """Return the publish worker, or that of a dry run, as configured.

    :param host: name of the agent's host.
    :param ovsdb: database of this host's Open vSwitch, None for none.
    :raises ConfigError: an option's value is invalid.
    """
    neutron = neutron_agents.make_neutron_agents(
        conf, [host, socket.getfqdn()]
    )
    make = (
        DryPublishWorker
        if conf.vhpc_agent.dry_run
        else publish_worker.PublishWorker
    )
    return make(conf, host, ovsdb, neutron)
