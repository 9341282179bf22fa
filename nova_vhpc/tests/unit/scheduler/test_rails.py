# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Members on tenant networks of OVN, whose uplinks are on rails."""

from uuid import uuid4

from nova import objects

from nova_vhpc.tests.unit.scheduler import world
from nova_vhpc.topology import model


class RailsTest(world.WorldTestCase):
    """Four hosts with four uplinks each, number n on rail 10.n.0.0/24."""

    def setUp(self):
        super().setUp()
        self.rails = {}
        # Allocations by UUID of a member.
        self.claims = {}
        for state in self.states:
            for port in range(4):
                rail = f'10.{port}.0.0/24'
                self.summary(state.nodename, port)['traits'] += [
                    model.TRAIT_TUNNEL,
                    model.rail_trait(rail),
                ]
                uuid = model.provider_uuid(
                    state.nodename, f'br{port}', f'eth{port}'
                )
                self.rails[uuid] = rail

    def spec(self, members, policy='anti-affinity', tunneled=True, **specs):
        spec = self.request(members, policy, **specs)
        spec.network_metadata = objects.NetworkMetadata(
            physnets=set(), tunneled=tunneled
        )
        return spec

    def get(self, path, version):
        if path.startswith('/allocations/'):
            self.reads.append(path)
            return {'allocations': self.claims[path.rsplit('/')[-1]]}
        return super().get(path, version)

    def running(self, spec, host, port):
        """Have a member of the spec's server group run on a host."""
        state = self.states[host]
        uuid = str(uuid4())
        self.take(host, port)
        spec.instance_group.members.append(uuid)
        spec.instance_group.hosts.append(state.host)
        state.instances[uuid] = None
        uplink = model.provider_uuid(state.nodename, f'br{port}', f'eth{port}')
        self.claims[uuid] = {uplink: {'resources': {model.UPLINK: 1}}}
        return uuid

    def test_member_of_a_later_request_claims_the_rail_of_running_ones(self):
        for port in range(4):
            spec = self.spec(1)
            (uuid,) = spec.instance_group.members
            self.running(spec, 0, port)
            (placed,) = self.place(spec, uuids=[uuid])
            self.assertEqual(f'10.{port}.0.0/24', self.rails[placed[1]])
            self.assertNotIn(f'/allocations/{uuid}', self.reads)

    def test_plan_without_claims_is_made_if_placement_is_away(self):
        spec = self.spec(1)
        (uuid,) = spec.instance_group.members
        self.claims.pop(self.running(spec, 0, 1))
        with self.assertLogs('nova_vhpc', 'WARNING') as logs:
            (placed,) = self.place(spec, uuids=[uuid])
        self.assertIsNotNone(placed)
        self.assertIn('rails of running members', logs.output[0])

    def test_claims_are_read_only_where_rails_matter(self):
        spec = self.spec(1, tunneled=False)
        (uuid,) = spec.instance_group.members
        self.running(spec, 0, 1)
        self.place(spec, uuids=[uuid])
        self.assertFalse([p for p in self.reads if 'allocations/' in p])

    def rails_of(self, placed):
        """Rails of the members of each host."""
        found = {}
        for host, uplink in placed:
            found.setdefault(host, set()).add(self.rails[uplink])
        return found

    def take(self, host, *ports):
        """Have other servers claim uplinks of a host."""
        state = self.states[host]
        for port in ports:
            self.summary(state.nodename, port)['resources'][model.UPLINK][
                'used'
            ] = 1
            uuid = model.provider_uuid(
                state.nodename, f'br{port}', f'eth{port}'
            )
            state.allocation_candidates = [
                candidate
                for candidate in state.allocation_candidates
                if uuid not in candidate['allocations']
            ]

    def test_members_claim_uplinks_of_one_rail(self):
        for host, ports in enumerate(((0,), (1, 3), (3,), (0, 1))):
            self.take(host, *ports)
        found = self.rails_of(self.place(self.spec(4)))
        self.assertEqual([{'10.2.0.0/24'}] * 4, list(found.values()))

    def test_members_of_one_host_claim_the_rails_of_the_others(self):
        for host, ports in enumerate(((0,), (3,), (0,), (3,))):
            self.take(host, *ports)
        # Two fit on a host.
        found = self.rails_of(self.place(self.spec(8, 'soft-anti-affinity')))
        self.assertEqual(
            [{'10.1.0.0/24', '10.2.0.0/24'}] * 4, list(found.values())
        )

    def test_lost_claim_is_followed_by_the_rail_of_the_others(self):
        lost = []

        def claims(candidate):
            (uplink,) = candidate['mappings']['_uplink']
            if not lost or lost[0] == uplink:
                lost.append(uplink)
                return False
            return True

        placed = self.place(self.spec(4), claims)
        found = self.rails_of(placed)
        # The member whose uplink was lost cannot be on that rail there.
        self.assertEqual(4, len(found))
        rails = [rail for (rail,) in found.values()]
        self.assertLessEqual(len(set(rails)), 2)
        self.assertEqual(
            3, max(rails.count(rail) for rail in set(rails)), rails
        )

    def test_rails_do_not_matter_on_other_networks(self):
        spec = self.spec(4, tunneled=False)
        self.place(spec)
        session = self.states[0]._vhpc.session
        self.assertEqual({}, session.plan_score.placement.rails)
