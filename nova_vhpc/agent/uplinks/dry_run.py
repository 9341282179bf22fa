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

"""What parts do in a dry run instead of writing: they read, and say it."""

import logging
from typing import Any

from nova_vhpc.agent.libvirt import interfaces
from nova_vhpc.agent.uplinks import plugger, publish_worker
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
        """What was found, in values that JSON takes."""
        # There is no publication that could have an age.
        return super().status() | {'age_s': None}

    def _publish(
        self, topology: model.HostTopology, stamp: int
    ) -> publisher.Published:
        node = self._make_publisher().node()
        return publisher.Published(node, (), (), 0)


class DryPlugger(plugger.Plugger):
    """Says which NICs it would move, and moves none."""

    dry_run = True

    def __init__(
        self, records: plugger.BindingJournal, host: qemu_process.Processes
    ) -> None:
        super().__init__(records, host)
        for uuid in records.uuids():
            if host.find(uuid):
                LOG.warning(
                    'NICs of %s are where an agent that did not end well '
                    'has plugged them, and a dry run writes nothing; stop '
                    'this one and run nova-vhpc-agent --restore',
                    uuid,
                )

    def bind(
        self, domain: Any, bridges: tuple[str, ...], uplink_nic: int | None
    ) -> int:
        """Say what would be moved.

        :returns: 0.
        :raises UnsupportedError: it could not be moved.
        """
        known = {nic.mac: nic for nic in interfaces.read(domain.XMLDesc(0))}
        moves = interfaces.choose(tuple(known.values()), bridges, uplink_nic)
        for mac, bridge in moves.items():
            known[mac].plugged_into(bridge)
            LOG.info(
                'Dry run: VM %s: NIC %s would be plugged into the claimed %s',
                domain.name(),
                mac,
                bridge,
            )
        return 0

    def uuids(self) -> frozenset[str]:
        """None that is to be put back."""
        return frozenset()

    def undo(self, domain: Any) -> int:
        """Nothing was moved.

        :returns: 0.
        """
        return 0

    def undo_all(self, conn: Any) -> dict[str, str]:
        """Nothing was moved.

        :returns: nothing went wrong.
        """
        return {}


def make_publishing(conf: Any, host: str) -> publish_worker.PublishWorker:
    """What publishes, or in a dry run does not.

    :raises ConfigError: when an option has a value that is not allowed.
    """
    if conf.vhpc_agent.dry_run:
        return DryPublishWorker(conf, host)
    return publish_worker.PublishWorker(conf, host)


def make_plugger(conf: Any) -> plugger.Plugger:
    """What moves NICs, or in a dry run does not."""
    if not conf.vhpc_agent.dry_run:
        return plugger.make_plugger(conf)
    return DryPlugger(
        plugger.BindingJournal(conf.vhpc_agent.state_path),
        qemu_process.make_processes(conf),
    )
