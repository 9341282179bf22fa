# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""The scenario of the main job, for the demo and the functional tests.

It has a cloud with bridges, uplinks, images and flavors, a second host whose
uplinks are too slow, and the program ``nova-vhpc-agent``.
"""

import contextlib
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from keystoneauth1 import adapter

from nova_vhpc.agent.daemon import status_socket
from nova_vhpc.placement import publisher
from nova_vhpc.placement.client import PlacementClient
from nova_vhpc.topology import model
from nova_vhpc_lab.stack import (
    client,
    cloud,
    config,
    environment,
    guard,
    guests,
    host,
    outsider,
    realhosts,
)
from nova_vhpc_lab.testbed.patience import PATIENCE_S, TooLongError

MEMBERS = 3
"""Members of the virtual cluster: more than a host has uplinks."""

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
    'quota:cpu_quota': '20000',
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

RESTORES = 3
"""How often ``nova-vhpc-agent --restore`` is run if libvirt refuses or is too
slow for a domain, as happens on a busy machine."""

CIDR = '10.99.0.0/24'
"""Addresses of the tenant network."""

Servers = list[dict[str, Any]]


def without_quota(extra_specs: Mapping[str, str]) -> dict[str, str]:
    """Return extra specs without those of a CPU quota."""
    return {
        key: value
        for key, value in extra_specs.items()
        if key not in ('quota:cpu_period', 'quota:cpu_quota')
    }


class Scenario:
    """A cloud with everything that the main job needs, and its agents.

    :param say: called with a line of text when a step of the start is done.
    :param hosts: number of hosts that run guests.
    :param last: environment of the last of these hosts.
    :ivar images: IDs of the images, by workload.
    """

    def __init__(
        self,
        say: Callable[[str], None] = lambda text: None,
        hosts: int = 2,
        last: environment.Environment = environment.HERE,
    ) -> None:
        self.cloud = realhosts.RealHosts(
            (SLOW_HOST,), say, count=hosts, last=last
        )
        self.images: dict[str, str] = {}
        self.networks: list[dict[str, str]] = []

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
        self.cloud.start()
        self.add_images()
        self.publish_slow_host()
        self.make_network()

    def stop(self) -> None:
        """End and remove everything; may be called again."""
        self.halt()
        self.cloud.stop()

    def halt(self) -> None:
        """End everything, keep the logs; may be called again."""
        self.cloud.halt()

    @property
    def hosts(self) -> tuple[host.Host, ...]:
        """The hosts that run guests."""
        return self.cloud.hosts

    def host_of(self, server: str) -> host.Host:
        """Return the host that a server runs on."""
        name = self.admin.server(server)['OS-EXT-SRV-ATTR:host']
        return next(each for each in self.hosts if each.name == name)

    def cputune(self, server: str) -> guests.Cputune:
        """Return the CPU settings of a server's domain."""
        return self.host_of(server).virsh.cputune(server)

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
        """Create a tenant network, with DHCP, that all projects share."""
        admin = self.admin
        network = admin.request(
            'network',
            'POST',
            '/v2.0/networks',
            {'network': {'name': 'fabric', 'shared': True}},
        )['network']['id']
        subnet = {
            'name': 'fabric',
            'network_id': network,
            'ip_version': 4,
            'cidr': CIDR,
        }
        admin.request('network', 'POST', '/v2.0/subnets', {'subnet': subnet})
        self.networks = [{'uuid': network}]

    def boot_cluster(
        self,
        name: str,
        group: str,
        count: int = MEMBERS,
        flavor: str = 'vhpc',
    ) -> Servers:
        """Create the members of a virtual cluster with one request."""
        return self.tenant.boot(
            name,
            flavor,
            self.images['barrier'],
            count,
            group,
            networks=self.networks,
        )

    def console(self, server: str) -> guests.Console:
        """Return the console log of a server."""
        instances = self.cloud.root / 'instances'
        return guests.Console(
            instances / server / 'console.log',
            self.host_of(server).virsh,
            server,
        )

    def tap(self, server: str) -> str:
        """Return the name of a server's only NIC on its host."""
        return self.host_of(server).virsh('domiflist', server).split()[0]

    def claimed_rail(self, server: str) -> int:
        """Return the number of the uplink that a server has claimed."""
        names = {p['uuid']: p['name'] for p in self.admin.providers()}
        (nic,) = [
            names[provider].split(':')[3]
            for provider in self.admin.allocations(server)
            if ':vhpc:' in names[provider]
        ]
        return int(nic.removeprefix('n'))

    def encap_ip(self, server: str) -> str:
        """Return the encap IP that OVN uses for a server; empty for none."""
        return self.cloud.encap_of(self.external_ids(server)['iface-id'])

    def external_ids(self, server: str) -> dict[str, str]:
        """Return the ``external_ids`` of a server's port in Open vSwitch."""
        switch = self.cloud.switch(self.host_of(server))
        return switch.external_ids(self.tap(server))

    def start_outsider(self, compute_host: host.Host) -> outsider.Outsider:
        """Start a machine on a host that sends packets to members."""
        made = outsider.Outsider(self.cloud.switch(compute_host))
        made.start(
            self.tenant, self.cloud.client('nova'), self.networks[0]['uuid']
        )
        return made

    def frames(
        self, sender: str, receiver: str, packets: int
    ) -> dict[tuple[str, str], list[int]]:
        """Have a server send packets to another one, which answers each.

        :returns: frames on each uplink of the hosts of the two, by name of
            the host and by ``in`` or ``out``.
        :raises TooLongError: if an answer is missing.
        """
        address = self.console(receiver).address() or ''
        console = self.console(sender)
        # The first packets make the hosts learn each other's addresses.
        self.cloud.settle_network()
        console.ping(address, 5)
        switches = {
            each.name: self.cloud.switch(each)
            for each in (self.host_of(sender), self.host_of(receiver))
        }
        keys = [(name, way) for name in switches for way in ('in', 'out')]
        before = {
            (name, way): switches[name].frames(way) for name, way in keys
        }
        if not console.ping(address, packets):
            raise TooLongError(
                f'{address} did not answer {packets} packets',
                packets + guests.ANSWER_S,
            )
        return {
            (name, way): [
                now - then
                for now, then in zip(
                    switches[name].frames(way), before[name, way], strict=True
                )
            ]
            for name, way in keys
        }

    def write_agent_conf(
        self,
        shared_cpus: Mapping[host.Host, int] | None = None,
        **control: Any,
    ) -> None:
        """Write nova-vhpc.conf of each host, as an operator does.

        :param shared_cpus: the only CPU of each host for servers; None for
            all of the machine.
        :param control: options of ``[vhpc_control]``.
        """
        credentials = self.cloud.config.credentials('vhpc-agent')
        for each in self.hosts:
            state = self.cloud.root / each.name
            config.write(
                self.agent_conf(each),
                {
                    'DEFAULT': {
                        'transport_url': self.cloud.config.transport_url
                    },
                    'vhpc_agent': {
                        'libvirt_uri': each.uri,
                        'state_path': each.state_path,
                        'run_path': each.run_path,
                        'metrics_port': 0,
                        'reconcile_period': 5,
                        'bind_uplinks': True,
                        **(
                            {}
                            if shared_cpus is None
                            else {'cpu_shared_set': shared_cpus[each]}
                        ),
                    },
                    'vhpc_topology': {
                        'bridges': 'br-n*:separate',
                        'nic_patterns': 'n*',
                        'ovsdb_connection': self.cloud.switch(each).socket,
                        'compute_id_file': state / 'compute_id',
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

    def agent_conf(self, compute_host: host.Host) -> Path:
        """Return the path of a host's nova-vhpc.conf."""
        return self.cloud.config.etc / f'{compute_host.name}-vhpc.conf'

    def start_agents(self, *options: str) -> None:
        """Start ``nova-vhpc-agent`` on each host.

        :param options: command line options, like ``--dry-run``.
        """
        for each in self.hosts:
            each.start_agent(self.agent_conf(each), *options)

    def stop_agents(self, timeout_s: float = 30) -> bool:
        """Stop the agents as systemd does.

        :returns: whether SIGTERM was enough.
        """
        stopped = [each.stop_agent(timeout_s) for each in self.hosts]
        return all(stopped)

    def kill_agents(self) -> None:
        """Kill the agents with SIGKILL."""
        for each in self.hosts:
            each.kill_agent()

    def restore(self) -> None:
        """Run ``nova-vhpc-agent --restore``, like systemd's ExecStopPost.

        It is repeated if it could not restore all domains, as its message
        tells an operator to do.

        :raises StackError: if it fails on a host.
        """
        for each in self.hosts:
            for attempt in range(1, RESTORES + 1):
                run = self._restore(each)
                if run.tail(1) == 'exit status 0':
                    break
                if run.tail(1) != 'exit status 1' or attempt == RESTORES:
                    raise cloud.StackError(f'{run.name}: {run.tail()}')

    def _restore(self, compute_host: host.Host) -> guard.Daemon:
        """Run ``nova-vhpc-agent --restore`` once, until its end.

        Its exit status is the last line of its log.

        :raises StackError: if it does not end in time.
        """
        run = compute_host.spawn(
            'restore',
            'sh',
            '-c',
            '"$@"; echo "exit status $?"',
            'sh',
            compute_host.programs.program('nova-vhpc-agent'),
            '--config-file',
            self.agent_conf(compute_host),
            '--restore',
            env=compute_host.programs.variables,
        )
        if not run.wait(PATIENCE_S):
            raise TooLongError(f'{run.name} goes on; {run.tail()}')
        return run

    def agent_status(self, compute_host: host.Host) -> dict[str, Any]:
        """Return the status of a host's agent.

        The agent gets a minute to answer, because emulated guests and a whole
        cloud may share two CPUs.

        :raises OSError: if the agent does not run or does not answer.
        """
        return status_socket.fetch(
            status_socket.socket_path(str(compute_host.run_path)), 60
        )

    def vms(self) -> dict[str, dict[str, Any]]:
        """Return what the agents say of the servers, by the server's ID.

        :raises OSError: if an agent does not run or does not answer.
        """
        return {
            vm['uuid']: vm
            for each in self.hosts
            for vm in self.agent_status(each)['vms']
        }

    def agents_answer(self) -> bool:
        """Tell whether all agents answer."""
        try:
            self.vms()
        except OSError:
            return False
        return True

    def has_published(self) -> bool:
        """Tell whether all agents report that their uplinks are published."""
        try:
            states = [
                self.agent_status(each)['publishing']['state']
                for each in self.hosts
            ]
        except OSError:
            return False
        return states == ['published'] * len(self.hosts)

    def _check_agents(self) -> None:
        for each in self.hosts:
            if each.agent is not None and not each.agent.alive():
                name, each.agent = each.agent.name, None
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
        timeout_s: float = PATIENCE_S,
        pause_s: float = 0.3,
    ) -> Any:
        """Wait until a condition is true, and return its value.

        :param what: description of the condition, for the error.
        :param condition: may fail with ``CalledProcessError``, which counts
            as false.
        :param pause_s: time between two calls, in seconds.
        :raises TooLongError: if it is not true within the time.
        :raises StackError: if an agent has ended.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            with contextlib.suppress(subprocess.CalledProcessError):
                if value := condition():
                    return value
            self._check_agents()
            if time.monotonic() > deadline:
                raise TooLongError(what, timeout_s)
            time.sleep(pause_s)
