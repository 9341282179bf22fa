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

"""Building and planning the request that weigher and explain share."""

import testtools

from nova_vhpc.scheduler import planner
from nova_vhpc.scheduler.hosts.requirements import of_flavor
from nova_vhpc.scheduler.planner import request


def plan(members, unknown):
    """Plan on one host of known and one of unknown topology."""
    hosts = [
        planner.HostFacts(name, 4, 0, 4, 65536) for name in ('known', 'other')
    ]
    wanted = of_flavor({'vhpc:max_overcommit': '1'}, 1)
    return request.plan_on_known_hosts_first(
        request.build_plan_request(wanted, 0, members, hosts, {}, None, None),
        unknown,
    )


class PlanRequestTest(testtools.TestCase):
    """Two hosts for four members each."""

    def test_hosts_of_unknown_topology_stay_empty_while_others_suffice(self):
        self.assertEqual({'known': 4}, plan(4, {'other'}).assignments)

    def test_hosts_of_unknown_topology_are_used_if_others_do_not_suffice(self):
        self.assertEqual(
            {'known': 4, 'other': 4}, plan(8, {'other'}).assignments
        )
