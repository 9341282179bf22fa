# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The agents of all hosts of a cloud that run guests."""

import contextlib
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nova_vhpc.agent.daemon import status_socket
from nova_vhpc_lab.stack import config, guard, host, processes, realhosts
from nova_vhpc_lab.testbed import patience
from nova_vhpc_lab.testbed.patience import PATIENCE_S, TooLongError

RESTORES = 3
"""How often ``nova-vhpc-agent --restore`` is run if libvirt refuses or is too
slow for a domain, as happens on a busy machine."""


class Agents:
    """Starts, stops and asks the agents.

    :param cloud: the cloud.
    """

    def __init__(self, cloud: realhosts.RealHosts) -> None:
        self.cloud = cloud

    @property
    def hosts(self) -> tuple[host.Host, ...]:
        """The hosts that run guests."""
        return self.cloud.hosts

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
                    raise processes.StackError(f'{run.name}: {run.tail()}')

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
                raise processes.StackError(f'{name} has ended')

    def wait(
        self,
        what: str,
        condition: Callable[[], Any],
        timeout_s: float = PATIENCE_S,
    ) -> Any:
        """Wait until a condition is true, and return its value.

        :param what: description of the condition, for the error.
        :param condition: may fail with ``CalledProcessError``, which counts
            as false.
        :raises TooLongError: if it is not true within the time.
        :raises StackError: if an agent has ended.
        """

        def value() -> Any:
            with contextlib.suppress(subprocess.CalledProcessError):
                if found := condition():
                    return found
            self._check_agents()
            return None

        return patience.wait(what, value, timeout_s)
