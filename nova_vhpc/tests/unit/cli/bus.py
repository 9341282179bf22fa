# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Agents on a message bus within the process of the tests."""

import pathlib
from typing import Any

import fixtures

from nova_vhpc.agent.rpc import control
from nova_vhpc.agent.rpc.native_threads import messaging
from nova_vhpc.tests.unit.agent.clusters import peer_agents

TIMEOUT_S = 10.0


class Agent:
    """What an agent answers to control calls.

    :ivar answer: the answer to all of them.
    :ivar calls: name and server of each call but ``status``.
    """

    def __init__(self, answer: dict[str, Any]) -> None:
        self.answer = answer
        self.calls: list[tuple[str, str | None]] = []

    def status(self) -> dict[str, Any]:
        return self.answer

    def pause(self, wait_s: float) -> dict[str, Any]:
        self.calls.append(('pause', None))
        return self.answer

    def resume(self, server: str | None) -> dict[str, Any]:
        self.calls.append(('resume', server))
        return self.answer

    def restore(self, server: str | None, wait_s: float) -> dict[str, Any]:
        self.calls.append(('restore', server))
        return self.answer


class Bus(fixtures.Fixture):
    """Real RPC servers and a configuration file that leads to them.

    :ivar options: options for commands.
    """

    def _setUp(self) -> None:
        self._conf = peer_agents.make_conf('fake://', call_timeout=TIMEOUT_S)
        file = pathlib.Path(self.useFixture(fixtures.TempDir()).join('conf'))
        file.write_text(
            '[DEFAULT]\ntransport_url = fake://\n'
            f'[vhpc_peers]\ncall_timeout = {TIMEOUT_S}\n'
        )
        self.options = ('--config-file', str(file))

    def agent(self, host: str, **answer: Any) -> Agent:
        """Let the agent of a host answer."""
        agent = Agent(answer)
        client = control.ControlClient(self._conf)
        self.addCleanup(client.close)
        server = messaging.get_rpc_server(
            client._transport,
            messaging.Target(topic=control.TOPIC, server=host),
            [control._Endpoint(agent)],
            access_policy=messaging.DefaultRPCAccessPolicy,
        )
        server.start()
        self.addCleanup(server.wait)
        self.addCleanup(server.stop)
        return agent
