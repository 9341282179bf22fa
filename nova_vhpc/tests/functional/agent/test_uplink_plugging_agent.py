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


"""A real agent publishes uplinks, plugs a claimed NIC, and restores it."""

import signal

from nova_vhpc.tests.functional.agent import test_uplink_plugging
from nova_vhpc.tests.functional.topology import test_publisher, test_publishing
from nova_vhpc.topology import model


class BindingAgentTest(
    test_uplink_plugging.BindingCase, test_publisher.PlacementCase
):
    def serve(self) -> None:
        self.endpoint = f'http://127.0.0.1:{test_publishing.serve(self).port}'

    def options(self) -> dict[str, object]:
        return {
            'bind_uplinks': 'true',
            'placement__auth_type': 'none',
            'placement__endpoint_override': self.endpoint,
            'vhpc_topology__publish': 'true',
            'vhpc_topology__node': 'cn1',
            'vhpc_topology__bridges': f'{self.own}:separate',
            'vhpc_topology__nic_patterns': self.far[:-1],
        }

    def test_claimed_nic_is_plugged_and_restored_at_crash_and_stop(
        self,
    ) -> None:
        domain = self.boot((self.shared, self.shared), ())
        agent = self.start_agent(**self.options())
        self.wait_for(
            lambda: self.status()['publishing']['state'] == 'published',
            'the publication',
        )
        self.nova(
            'PUT',
            f'/allocations/{domain.UUIDString()}',
            allocations={
                model.provider_uuid('cn1', self.own, self.far[:-1]): {
                    'resources': {model.UPLINK: 1}
                }
            },
            project_id='p',
            user_id='u',
            consumer_generation=None,
        )
        plugged = [self.shared, self.own]
        original = [self.shared, self.shared]
        self.wait_for(lambda: self.plugs(domain) == plugged, 'the binding')
        self.wait_for(lambda: self.status()['binding']['bound'], 'the status')
        self.stop_agent(agent, signal.SIGKILL)
        self.assertEqual(plugged, self.plugs(domain))
        self.assertEqual(0, self.restore())
        self.assertEqual(original, self.plugs(domain))

        agent = self.start_agent(**self.options())
        self.wait_for(lambda: self.plugs(domain) == plugged, 'the binding')
        self.assertEqual(0, self.stop_agent(agent))
        self.assertEqual(original, self.plugs(domain))
