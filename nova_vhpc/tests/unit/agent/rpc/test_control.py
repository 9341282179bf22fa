# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Control calls over an in-memory bus."""

import socket
import threading
import types
import uuid
from typing import Any

import fixtures
from oslotest import base

from nova_vhpc.agent.rpc import control
from nova_vhpc.agent.rpc.native_threads import messaging
from nova_vhpc.tests.unit import waiting
from nova_vhpc.tests.unit.agent.clusters import peer_agents

RESULT = {'restored': [], 'failed': {'s': 'busy'}, 'unknown': []}


class Control:
    """An agent that records the calls."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def status(self) -> dict[str, Any]:
        return {}

    def pause(self, wait_s: float) -> dict[str, Any]:
        self.calls.append(('pause', wait_s))
        return RESULT

    def resume(self, server: str | None) -> None:
        self.calls.append(('resume', server))

    def restore(self, server: str | None, wait_s: float) -> dict[str, Any]:
        self.calls.append(('restore', server, wait_s))
        return RESULT


class NextMajorEndpoint:
    """The endpoint of a later release that broke with this one."""

    target = messaging.Target(namespace=control.NAMESPACE, version='2.0')

    def status(self, context: Any) -> dict[str, Any]:
        return {'answer': {}}


class TestControl(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        conf = peer_agents.make_conf('fake://', call_timeout=10.0)
        self.client = control.ControlClient(conf)
        self.addCleanup(self.client.close)
        self.host = uuid.uuid4().hex
        self.control = Control()

    def serve(self, endpoint: Any) -> None:
        server = messaging.get_rpc_server(
            self.client._transport,
            messaging.Target(topic=control.TOPIC, server=self.host),
            [endpoint],
            access_policy=messaging.DefaultRPCAccessPolicy,
        )
        server.start()
        self.addCleanup(server.wait)
        self.addCleanup(server.stop)

    def test_agent_waits_for_less_than_the_callers_timeout(self) -> None:
        self.serve(control._Endpoint(self.control))
        call = self.client.call
        self.assertEqual(RESULT, call(self.host, 'pause'))
        self.assertEqual(RESULT, call(self.host, 'restore', server='s'))
        self.assertEqual({}, call(self.host, 'resume'))
        self.assertEqual({}, call(self.host, 'resume', server='s'))
        self.assertEqual(
            [
                ('pause', 8.0),
                ('restore', 's', 8.0),
                ('resume', None),
                ('resume', 's'),
            ],
            self.control.calls,
        )

    def test_call_without_a_wait_waits_for_some_seconds(self) -> None:
        endpoint = control._Endpoint(self.control)
        endpoint.pause({})
        endpoint.restore({}, server='s')
        self.assertEqual(
            [('pause', control.WAIT_S), ('restore', 's', control.WAIT_S)],
            self.control.calls,
        )

    def test_agent_of_another_major_version_is_one_line(self) -> None:
        self.serve(NextMajorEndpoint())
        error = self.assertRaises(
            control.ControlError, self.client.call, self.host, 'status'
        )
        self.assertIn(f'host {self.host}: ', str(error))
        self.assertIn('does not know vhpc.control 1.0', str(error))

    def test_close_does_not_wait_for_a_call_that_is_under_way(self) -> None:
        """As after Ctrl-C, while the driver waits for its broker."""
        cleanup = self.useFixture(
            fixtures.MockPatchObject(self.client._transport, 'cleanup')
        ).mock
        begun, released = threading.Event(), threading.Event()

        def call(*args: Any, **kwargs: Any) -> dict[str, Any]:
            begun.set()
            self.assertTrue(released.wait(60.0))
            return {'answer': {}}

        self.useFixture(
            fixtures.MockPatchObject(self.client._client, 'prepare')
        ).mock.return_value.call = call
        caller = threading.Thread(
            target=self.client.call, args=(self.host, 'status'), daemon=True
        )
        caller.start()
        self.assertTrue(begun.wait(60.0))
        self.client.close()
        cleanup.assert_not_called()
        released.set()
        caller.join(60.0)
        waiting.wait_for(lambda: self.client.close() or cleanup.called)
        cleanup.assert_called_once_with()

    def test_wait_of_a_call_is_limited(self) -> None:
        endpoint = control._Endpoint(self.control)
        endpoint.pause(types.SimpleNamespace(), wait_s=1e9)
        endpoint.pause(types.SimpleNamespace(), wait_s=-1)
        self.assertEqual(
            [('pause', control.MAX_WAIT_S), ('pause', 0.0)],
            self.control.calls,
        )

    def test_broker_that_is_down_is_named_at_once(self) -> None:
        with socket.create_server(('127.0.0.1', 0)) as free:
            address = f'127.0.0.1:{free.getsockname()[1]}'
        client = control.ControlClient(
            peer_agents.make_conf(f'rabbit://u:secret@{address}/')
        )
        self.addCleanup(client.close)
        error = self.assertRaises(
            control.ControlError, client.call, 'host', 'status'
        )
        self.assertIn(f'{address}: [Errno 111]', str(error))
        self.assertIn('transport_url', str(error))
        self.assertNotIn('secret', str(error))

    def test_call_without_a_host_is_refused(self) -> None:
        """RabbitMQ would give the call to any agent; this driver to none."""
        error = self.assertRaises(
            control.ControlError, self.client.call, '', 'pause'
        )
        self.assertEqual('no host is named', str(error))

    def test_arguments_of_wrong_kind_are_refused_in_the_answer(self) -> None:
        endpoint = control._Endpoint(self.control)
        for answer in (
            endpoint.pause({}, wait_s='soon'),
            endpoint.restore({}, wait_s=10**400),
            endpoint.restore({}, server=['u']),
            endpoint.resume({}, server={}),
        ):
            self.assertIn('error', answer)
        self.assertEqual([], self.control.calls)
