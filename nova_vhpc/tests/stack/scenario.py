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


"""The scenario of the main job, for the demo and the functional tests.

It has a cloud with bridges, uplinks, images and flavors, a second host whose
uplinks are too slow, and the program ``nova-vhpc-agent``.
"""

import contextlib
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from keystoneauth1 import adapter

from nova_vhpc.agent.daemon import status_socket
from nova_vhpc.placement import publisher
from nova_vhpc.placement.client import PlacementClient
from nova_vhpc.tests.stack import bridges, client, cloud, config, guests
from nova_vhpc.topology import model

SLOW_HOST = 'slow-node'
SLOW_MBPS = 1000

FLAVOR: Mapping[str, str] = {
    'vhpc:workload': 'parallel',
    'vhpc:paradigm': 'mpi',
    'vhpc:network': 'separate',
    'vhpc:min_link_mbps': '5000',
    'vhpc:max_overcommit': '4',
    'vhpc:spare_cpus': '0',
    f'resources_uplink:{model.UPLINK}': '1',
    f'trait_uplink:{model.TRAIT_SEPARATE}': 'required',
    'quota:cpu_period': '100000',
    'quota:cpu_quota': '30000',
}
"""Extra specs of a virtual cluster's members; see doc/source/admin.

The quotas of all guests leave more than half a CPU to the cloud's services,
even if the machine has only two CPUs.
"""

PLAIN_FLAVOR: Mapping[str, str] = {
    'quota:cpu_period': '100000',
    'quota:cpu_quota': '10000',
    'trait:COMPUTE_NET_VIF_MODEL_VIRTIO': 'required',
}
"""Extra specs of the server without ``vhpc:`` specs.

Only the host that runs guests has the trait. Without it, Nova would choose the
slow host, which has more free RAM once the members run.
"""


Servers = list[dict[str, Any]]


class Scenario:
    """A cloud with everything that the main job needs, and its agent.

    :param say: called with a line of text when a step of the start is done.
    :ivar images: IDs of the images, by workload.
    """

    def __init__(self, say: Callable[[str], None] = lambda text: None) -> None:
        self.cloud = cloud.Cloud((SLOW_HOST,), say)
        self.bridges = bridges.Bridges(self.cloud.tag, 2)
        self.virsh = guests.Virsh(self.cloud.libvirt.uri)
        self.images: dict[str, str] = {}
        self.networks: list[dict[str, str]] = []
        self._agents = 0
        self._running = ''

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the cloud and create everything but flavors and servers."""
        self.make_bridges()
        self.cloud.start()
        self.add_images()
        self.publish_slow_host()
        self.make_network()

    def make_bridges(self) -> None:
        """Create the bridges, which are removed even if the caller dies."""
        for name in (*self.bridges.names, *self.bridges.uplinks):
            self.cloud.keeper.at_end(('ip', 'link', 'delete', name))
        self.bridges.make()

    def stop(self) -> None:
        """End and remove everything; may be called again."""
        self.halt()
        self.cloud.stop()

    def halt(self) -> None:
        """End everything, keep the logs; may be called again."""
        taps = self.virsh.taps()
        self.cloud.halt()
        self.bridges.remove(taps)

    @property
    def admin(self) -> client.Client:
        """A REST client with the rights of an administrator."""
        return self.cloud.client('admin')

    @property
    def tenant(self) -> client.Client:
        """A REST client with the rights of a tenant."""
        return self.cloud.client('tenant')

    def add_images(self) -> None:
        """Add an image for each workload."""
        for workload in ('barrier', 'hog'):
            self.images[workload] = self.cloud.add_guest_image(workload)

    def publish_slow_host(self) -> None:
        """Publish slow uplinks, as the agent of the second host would."""
        topology = model.HostTopology(
            node=SLOW_HOST,
            bridges=tuple(
                model.Bridge(
                    name=f'br{n}',
                    kind=model.BridgeKind.SEPARATE,
                    uplinks=(
                        model.Uplink(
                            nic=f'eth{n}',
                            bridge=f'br{n}',
                            kind=model.BridgeKind.SEPARATE,
                            mbps=SLOW_MBPS,
                        ),
                    ),
                )
                for n in range(2)
            ),
        )
        adaptor = adapter.Adapter(self.admin.session, 'placement')
        publisher.Publisher(PlacementClient(adaptor), [SLOW_HOST]).publish(
            topology, model.stamp(time.time())
        )

    def make_network(self) -> None:
        """Create a network on the bridges.

        The stand-in of Neutron attaches each NIC to the bridge of the uplink
        that its server has claimed.
        """
        node = socket.gethostname()
        bridges = {
            model.provider_uuid(node, bridge, uplink): bridge
            for bridge, uplink in zip(
                self.bridges.names, self.bridges.uplinks, strict=True
            )
        }
        body = {'network': {'name': 'fabric', 'vhpc:bridges': bridges}}
        response = self.admin.request(
            'network', 'POST', '/v2.0/networks', body
        )
        self.networks = [{'uuid': response['network']['id']}]

    def boot_cluster(self, name: str, group: str, count: int = 2) -> Servers:
        """Create the members of a virtual cluster with one request."""
        return self.tenant.boot(
            name,
            'vhpc',
            self.images['barrier'],
            count,
            group,
            networks=self.networks,
        )

    def bridge_of(self, server: str) -> str | None:
        """Return the bridge of a server's only NIC; None without one."""
        words = self.virsh('domiflist', server).split()
        if not words:
            return None
        link = Path('/sys/class/net', words[0], 'master')
        return link.resolve().name if link.exists() else None

    def console(self, server: str) -> guests.Console:
        """Return the console log of a server."""
        instances = self.cloud.root / 'compute' / 'instances'
        return guests.Console(instances / server / 'console.log')

    def write_agent_conf(self, **control: Any) -> Path:
        """Write nova-vhpc.conf as an operator does, and return its path.

        :param control: options of ``[vhpc_control]``.
        """
        tag, root = self.cloud.tag, self.cloud.root
        credentials = self.cloud.config.credentials('vhpc-agent')
        return config.write(
            root / 'etc' / 'nova-vhpc.conf',
            {
                'DEFAULT': {'transport_url': self.cloud.config.transport_url},
                'vhpc_agent': {
                    'libvirt_uri': self.cloud.libvirt.uri,
                    'state_path': root / 'agent' / 'state',
                    'run_path': root / 'agent' / 'run',
                    'metrics_port': 0,
                    'reconcile_period': 5,
                },
                'vhpc_topology': {
                    'bridges': f'{tag}br*:separate',
                    'nic_patterns': f'{tag}up*',
                    'compute_id_file': root / 'compute' / 'compute_id',
                    'poll_interval': 1,
                },
                'vhpc_nova': {
                    'poll_interval': 5,
                    'min_interval': 1,
                    **credentials,
                },
                'placement': credentials,
                'vhpc_control': control,
            },
        )

    def agent_command(self, *options: str) -> list[str]:
        """Return the command line of ``nova-vhpc-agent``."""
        conf = self.cloud.root / 'etc' / 'nova-vhpc.conf'
        program = self.cloud.program('nova-vhpc-agent')
        return [str(program), '--config-file', str(conf), *options]

    def start_agent(self, *options: str) -> str:
        """Start ``nova-vhpc-agent``.

        :param options: command line options, like ``--dry-run``.
        :returns: name of the daemon in the cloud.
        """
        self._agents += 1
        name = f'agent-{self._agents}'
        self.cloud.spawn(name, *self.agent_command(*options))
        self._running = name
        return name

    def stop_agent(self, timeout_s: float = 30) -> bool:
        """Stop the agent as systemd does.

        :returns: whether SIGTERM was enough.
        """
        self._running = ''
        return self.cloud.daemon(f'agent-{self._agents}').stop(timeout_s)

    def kill_agent(self) -> None:
        """Kill the agent with SIGKILL."""
        self._running = ''
        daemon = self.cloud.daemon(f'agent-{self._agents}')
        daemon.signal(signal.SIGKILL)
        daemon.wait()

    def restore(self) -> subprocess.CompletedProcess[str]:
        """Run ``nova-vhpc-agent --restore``, like systemd's ExecStopPost."""
        return subprocess.run(
            self.agent_command('--restore'),
            capture_output=True,
            text=True,
            timeout=120,
        )

    def agent_status(self) -> dict[str, Any]:
        """Return the agent's status.

        The agent gets a minute to answer, because emulated guests and a whole
        cloud may share two CPUs.

        :raises OSError: if the agent does not run or does not answer.
        """
        run_path = self.cloud.root / 'agent' / 'run'
        return status_socket.fetch(
            status_socket.socket_path(str(run_path)), 60
        )

    def has_published(self) -> bool:
        """Tell whether the agent reports that its uplinks are published."""
        try:
            state = self.agent_status()['publishing']['state']
        except OSError:
            return False
        return bool(state == 'published')

    def _check_agent(self) -> None:
        if self._running and not self.cloud.daemon(self._running).alive():
            name, self._running = self._running, ''
            raise cloud.StackError(f'{name} has ended')

    def published(self, node: str) -> list[dict[str, Any]]:
        """Return the uplink providers of a compute node in Placement."""
        prefix = f'{node}:vhpc:'
        return [
            provider
            for provider in self.admin.providers()
            if provider['name'].startswith(prefix)
            and model.UPLINK in provider['inventories']
        ]

    def wait(
        self,
        what: str,
        condition: Callable[[], Any],
        timeout_s: float = 60,
        pause_s: float = 0.3,
    ) -> Any:
        """Wait until a condition is true, and return its value.

        :param what: description of the condition, for the error.
        :param condition: may fail with ``CalledProcessError``, which counts
            as false.
        :param pause_s: time between two calls, in seconds.
        :raises TimeoutError: if it is not true within the time.
        :raises StackError: if the agent has ended.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            with contextlib.suppress(subprocess.CalledProcessError):
                if value := condition():
                    return value
            self._check_agent()
            if time.monotonic() > deadline:
                raise TimeoutError(f'{what}: not within {timeout_s:.0f} s')
            time.sleep(pause_s)
