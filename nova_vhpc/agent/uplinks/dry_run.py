# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Publish worker and plugger of a dry run: they read and log only."""

import logging
from typing import Any

from nova_vhpc.agent.libvirt import interfaces
from nova_vhpc.agent.ovsdb import connection
from nova_vhpc.agent.uplinks import bindings, plugger, publish_worker
from nova_vhpc.linux import qemu_process
from nova_vhpc.placement import publisher
from nova_vhpc.topology import model

LOG = logging.getLogger(__name__)


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


class DryPlugger(plugger.Plugger):
    """Logs which NICs it would move, and moves none."""

    dry_run = True

    def __init__(
        self,
        journal: bindings.BindingJournal,
        processes: qemu_process.Processes,
    ) -> None:
        super().__init__(journal, processes)
        for uuid in journal.uuids():
            if processes.find(uuid):
                LOG.warning(
                    'NICs of VM %s are still where an agent that crashed has '
                    'plugged them, and a dry run does not restore them; stop '
                    'this agent and run nova-vhpc-agent --restore',
                    uuid,
                )

    def bind(
        self, domain: Any, bridges: tuple[str, ...], uplink_nic: int | None
    ) -> int:
        """Log which NICs would be moved.

        :returns: 0.
        :raises UnsupportedError: a NIC could not be moved.
        """
        nics = {nic.mac: nic for nic in interfaces.read(domain.XMLDesc(0))}
        moves = interfaces.choose(tuple(nics.values()), bridges, uplink_nic)
        for mac, bridge in moves.items():
            nics[mac].plugged_into(bridge)
            LOG.info(
                'Dry run: VM %s: NIC %s would be plugged into the claimed %s',
                domain.name(),
                mac,
                bridge,
            )
        return 0

    def uuids(self) -> frozenset[str]:
        """Return no UUID: nothing was moved."""
        return frozenset()

    def restore(self, domain: Any) -> int:
        """Do nothing, and return 0: nothing was moved."""
        return 0

    def restore_all(self, conn: Any) -> dict[str, str]:
        """Do nothing, and return no failures: nothing was moved."""
        return {}


def make_publish_worker(
    conf: Any, host: str, ovsdb: connection.Ovsdb | None = None
) -> publish_worker.PublishWorker:
    """Return the publish worker, or that of a dry run, as configured.

    :param host: name of the agent's host.
    :param ovsdb: database of this host's Open vSwitch, None for none.
    :raises ConfigError: an option's value is invalid.
    """
    if conf.vhpc_agent.dry_run:
        return DryPublishWorker(conf, host, ovsdb)
    return publish_worker.PublishWorker(conf, host, ovsdb)


def make_plugger(conf: Any) -> plugger.Plugger:
    """Return the plugger, or that of a dry run, as configured."""
    if not conf.vhpc_agent.dry_run:
        return plugger.make_plugger(conf)
    return DryPlugger(
        bindings.BindingJournal(conf.vhpc_agent.state_path),
        qemu_process.make_processes(conf),
    )
