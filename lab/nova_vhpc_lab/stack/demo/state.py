# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The state of the demo, which its parts share."""

import functools
import os

from nova_vhpc_lab.stack import (
    environment,
    guard,
    guests,
    host,
    outsider,
    scenario,
    show,
)
from nova_vhpc_lab.testbed import patience

STOP_S = 120.0 * patience.TIMES
"""``TimeoutStopSec`` in the agent's systemd unit."""


class DemoError(Exception):
    """A part had a wrong result."""


class Demo:
    """The demo and its state between the parts.

    :param last: environment of nova-compute and agent of the last host.
    :ivar stage: the cloud and its agents.
    :ivar show: prints what happens.
    :ivar members: IDs of the members of the virtual cluster.
    :ivar others: IDs of the servers without ``vhpc:`` specs.
    :ivar names: names of all servers, by ID.
    :ivar before: CPU settings before the agents' first write, by ID.
    :ivar ports: ``external_ids`` of the members' ports before it, by ID.
    :ivar together: two members of one host.
    :ivar apart: two members of two hosts.
    :ivar logs: daemons whose logs are shown if the current part fails.
    """

    def __init__(
        self, last: environment.Environment = environment.HERE
    ) -> None:
        self.show = show.Show()
        self.stage = scenario.Scenario(self.show.say, last=last)
        self.members: list[str] = []
        self.others: list[str] = []
        self.names: dict[str, str] = {}
        self.before: dict[str, guests.Cputune] = {}
        self.ports: dict[str, dict[str, str]] = {}
        self.together: tuple[str, str] = ('', '')
        self.apart: tuple[str, str] = ('', '')
        self.logs: list[guard.Daemon] = []
        self._hosts: dict[str, host.Host] = {}
        self._consoles: dict[str, guests.Console] = {}

    @functools.cached_property
    def outsider(self) -> outsider.Outsider:
        """A machine on the first host, outside of any virtual cluster."""
        return self.stage.start_outsider(self.stage.hosts[0])

    def start_agents(self, *options: str) -> None:
        """Start the agent of each host; wait until all answer.

        :param options: command line options.
        """
        self.stage.start_agents(*options)
        self.logs = [each.agent for each in self.stage.hosts if each.agent]
        self.stage.wait('answers of the agents', self.stage.agents_answer)

    def stop_agents(self) -> None:
        """Stop the agents as systemd does by their unit.

        :raises DemoError: if SIGTERM was not enough.
        """
        if not self.stage.stop_agents(STOP_S):
            raise DemoError('an agent did not end on SIGTERM')
        left = [each.name for each in self.stage.hosts if each.journal()]
        if left:
            self.show.say(
                f'{", ".join(left)}: not all restored in the time of a stop, '
                'because this machine is busy; nova-vhpc-agent --restore '
                'does it, as ExecStopPost in the systemd unit'
            )
            self.stage.restore()

    def take_servers(
        self, members: scenario.Servers, others: scenario.Servers
    ) -> None:
        """Take the servers that the next parts are about."""
        self.members = [server['id'] for server in members]
        self.others = [server['id'] for server in others]
        self.names = {
            server['id']: server['name']
            for server in sorted(
                members + others, key=lambda server: server['name']
            )
        }

    def cpu_of(self, compute_host: host.Host) -> int:
        """Return the CPU that is a host's alone in some parts."""
        usable = sorted(os.sched_getaffinity(0))
        return usable[self.stage.hosts.index(compute_host) % len(usable)]

    def host_of(self, server: str) -> host.Host:
        """Return the host of an active server.

        Nova is asked once: each call costs a busy machine more than what it
        is for, and the demo moves no server.
        """
        if server not in self._hosts:
            self._hosts[server] = self.stage.host_of(server)
        return self._hosts[server]

    def console(self, server: str) -> guests.Console:
        """Return the console of an active server."""
        if server not in self._consoles:
            self._consoles[server] = self.stage.console(server)
        return self._consoles[server]

    def cputune(self, server: str) -> guests.Cputune:
        """Return the CPU settings of an active server's domain."""
        return self.host_of(server).virsh.cputune(server)

    def progress(self, server: str) -> int | None:
        """Return the last progress that a server has reported."""
        return self.console(server).progress()

    def wait_for_progress(self) -> None:
        """Wait until all servers have reported progress."""
        with self.show.waiting('progress of the guests on their consoles'):
            self.stage.wait(
                'progress on all consoles',
                lambda: all(self.progress(uuid) for uuid in self.names),
            )

    def wait_for_addresses(self) -> None:
        """Wait until all members have an address."""
        with self.show.waiting("the members' addresses, by DHCP"):
            self.stage.wait(
                'addresses of all members',
                lambda: all(
                    self.console(uuid).address() for uuid in self.members
                ),
            )

    def remember_settings(self) -> None:
        """Remember the settings before the first write of an agent."""
        self.before = self.cputunes()
        self.ports = self._external_ids()

    def cputunes(self) -> dict[str, guests.Cputune]:
        """Return the present CPU settings of all servers, by ID."""
        return {uuid: self.cputune(uuid) for uuid in self.names}

    def _external_ids(self) -> dict[str, dict[str, str]]:
        return {uuid: self.stage.external_ids(uuid) for uuid in self.members}

    def wait_for_writes(self) -> None:
        """Wait until the agents have written to all members and ports."""
        self.stage.wait(
            'the agents to write to all members',
            lambda: all(
                self.cputune(uuid).changes(self.before[uuid])
                and 'encap-ip' in self.stage.external_ids(uuid)
                for uuid in self.members
            ),
        )

    def compare_exactly(self, title: str) -> None:
        """Show that all servers and ports have their original settings.

        :raises DemoError: if one has not.
        """
        now = self.cputunes()
        self.compare(title, now)
        for uuid, name in self.names.items():
            if changes := now[uuid].changes(self.before[uuid]):
                raise DemoError(f'{name} is not as before: {changes}')
        ports = self._external_ids()
        if ports != self.ports:
            raise DemoError(f'ports are not as before: {self.ports}, {ports}')
        self.show.say('exactly as before, external_ids of the ports, too')

    def compare(self, title: str, now: dict[str, guests.Cputune]) -> None:
        """Show the CPU settings of all servers before the agents and now."""
        rows = []
        for uuid, name in self.names.items():
            for when, cputunes in (('before', self.before), ('now', now)):
                tune = cputunes[uuid]
                rows.append(
                    (
                        name if when == 'before' else '',
                        when,
                        tune['vcpu_period'],
                        tune['vcpu_quota'],
                        tune['cpu_shares'],
                        ' | '.join(tune.pins),
                        tune.emulator,
                    )
                )
        self.show.table(
            title,
            (
                'server',
                '',
                'period us',
                'quota us',
                'shares',
                'pins of vCPU 0 | 1',
                'emulator',
            ),
            rows,
        )
