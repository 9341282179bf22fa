# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The reference of the RPC names what the code has."""

import inspect
import pathlib

from nova_vhpc.agent.clusters import bus, bus_health, messages, protocol
from nova_vhpc.agent.rpc import control, transport
from nova_vhpc.control.model import ClusterPlan, Phase
from nova_vhpc.tests import base

TOP = pathlib.Path(__file__).parents[4]
ENDPOINTS = (
    bus._Endpoint,
    control._Endpoint,
    bus_health.EchoEndpoint,
)


class RpcTest(base.TestCase):
    def test_all_of_it_is_documented(self):
        page = (TOP / 'doc' / 'source' / 'reference' / 'rpc.rst').read_text()
        for endpoint in ENDPOINTS:
            target = endpoint.target
            self.assertIn(f'``{target.namespace}`` {target.version}', page)
            for name, method in inspect.getmembers(
                endpoint, inspect.isfunction
            ):
                if not name.startswith('_'):
                    self.assertIn(f'``{name}(', page)
                    for argument in inspect.signature(method).parameters:
                        if argument not in ('self', 'context', 'fields'):
                            self.assertIn(argument, page)
        fields = messages.encode_phase(
            protocol.Message('c', 'h', 1, 2, 6, ClusterPlan(Phase.IO, 5))
        )
        for name in fields:
            self.assertIn(name, page)
        self.assertIn(f'exchange ``{transport.EXCHANGE}``', page)
