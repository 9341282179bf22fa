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

"""The reference of the RPC names what the code has."""

import inspect
import pathlib

from nova_vhpc.agent.clusters import bus, bus_health
from nova_vhpc.agent.rpc import control, transport
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
        fields = bus.encode(
            bus.protocol.Message(
                'c', 'h', 1, 2, bus.ClusterPlan(bus.Phase.IO, 5), 6
            )
        )
        for name in fields:
            self.assertIn(name, page)
        self.assertIn(f'exchange ``{transport.EXCHANGE}``', page)
