# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


import copy
import dataclasses
import json

from nova_vhpc.explain import explain
from nova_vhpc.explain.request import RequestError
from nova_vhpc.explain.request_file import read
from nova_vhpc.flavor import extra_specs, recipes
from nova_vhpc.tests import base

NOW_S = 60_000_000.0


def uplink(number, kind='separate', **facts):
    return {
        'nic': f'eth{number}',
        'bridge': f'br{number}',
        'kind': kind,
        'mbps': 10000,
        **facts,
    }


def host(number, uplinks=2, **facts):
    if isinstance(uplinks, int):
        uplinks = [uplink(n) for n in range(uplinks)]
    return {
        'name': f'c{number}',
        'cpus': 16,
        'free_ram_mb': 65536,
        'uplinks': uplinks,
        'switch': 's1',
        'rack': 'r1',
        **facts,
    }


def request(hosts, network='separate', members=4, **more):
    exported = network == 'exported'
    specs = (
        {}
        if network is None
        else recipes.recipe(
            {'network': network, 'workload': 'parallel'},
            alias='nic' if exported else None,
        )
    )
    return {
        'members': members,
        'flavor': {'vcpus': 2, 'ram_mb': 2048, 'extra_specs': specs},
        'hosts': hosts,
        **more,
    }


def answer(document):
    found, hosts = read(document, now_s=NOW_S)
    return explain.explain(found.question(hosts, now_s=NOW_S))


def by_name(found):
    return {item.name: item for item in found.hosts}


class FitTest(base.TestCase):
    def test_reason_names_cpus_bridge_nic_or_link(self):
        found = by_name(
            answer(
                request(
                    [
                        host(1),
                        host(2, uplinks=0),
                        host(3, uplinks=[uplink(1, up=False)]),
                        host(4, uplinks=None),
                        host(5, used_vcpus=16),
                        host(6, published_minutes_ago=90),
                        host(7, uplinks=[uplink(1, used=1)]),
                        host(8, nova_lack='its nova-compute is down'),
                    ],
                    flavor={
                        'vcpus': 2,
                        'ram_mb': 2048,
                        'extra_specs': {
                            **recipes.recipe({'network': 'separate'}),
                            'vhpc:max_overcommit': '1.0',
                        },
                    },
                    members=1,
                )
            )
        )
        self.assertIsNone(found['c1'].reason)
        for name, text in (
            ('c2', 'no uplink at all'),
            ('c3', 'the link of NIC eth1 on bridge br1 is down'),
            ('c4', 'no agent has published'),
            ('c5', 'vhpc:max_overcommit'),
            ('c6', 'minutes ago'),
            ('c8', 'its nova-compute is down'),
        ):
            self.assertIn(text, found[name].reason)
            self.assertIsNone(found[name].weight)
        self.assertEqual('nova', found['c8'].rejected_by)
        self.assertEqual('filter', found['c3'].rejected_by)
        # Full uplinks are Placement's matter; they only get no member.
        self.assertEqual(0, found['c7'].planned)

    def test_ports_need_uplinks_of_neutron(self):
        def bridge(physnet, used=0):
            return {
                'device': f'br-{physnet}',
                'physnet': physnet,
                'kbps': 10_000_000,
                'used': used,
            }

        document = request(
            [
                host(1, neutron_uplinks=[bridge('hpc0'), bridge('hpc1')]),
                host(2, neutron_uplinks=[bridge('hpc1', 10_000_000)]),
                host(3, neutron_uplinks=[bridge('hpc0')]),
                host(4),
            ],
            flavor={
                'vcpus': 2,
                'ram_mb': 2048,
                'extra_specs': {'vhpc:network': 'separate'},
            },
            members=1,
            ports=[{'physnet': 'hpc1', 'kbps': 10_000_000}],
        )
        found = by_name(answer(document))
        one = found['c1']
        self.assertEqual(
            (1, 10000, 1), (one.slots, one.link_mbps, one.planned)
        )
        self.assertEqual(
            ('br-hpc1 (10000 Mbit/s according to Neutron)',), one.uplinks
        )
        self.assertEqual((None, 0), (found['c2'].reason, found['c2'].slots))
        for name in ('c3', 'c4'):
            self.assertIn('CUSTOM_PHYSNET_HPC1', found[name].reason)
        document['ports'] = []
        for host_answer in answer(document).hosts:
            self.assertIn('openstack port create', host_answer.reason)

    def test_tunneled_members_need_uplinks_with_an_encap_ip(self):
        hosts = [host(1, uplinks=[uplink(1, rail='10.1.0.0/24')]), host(2)]
        document = request(hosts, members=1, tunneled=True)
        found = by_name(answer(document))
        self.assertIsNone(found['c1'].reason)
        self.assertIn('eth0 on bridge br0 has no encap', found['c2'].reason)
        del document['tunneled']
        self.assertTrue(all(h.reason is None for h in answer(document).hosts))

    def test_note_says_that_nothing_steers_tunneled_members(self):
        for uplinks, network, count in (
            ([uplink(1)], 'separate', 1),
            ([uplink(1, tunnel=True)], 'separate', 0),
            ([uplink(1)], 'exported', 0),
        ):
            document = request(
                [host(1, uplinks=uplinks, devices=1)],
                network,
                members=1,
                tunneled=True,
            )
            found = answer(document)
            self.assertIsNone(found.hosts[0].reason)
            self.assertEqual(
                count, sum('encap IP of OVN' in note for note in found.notes)
            )

    def test_provider_members_need_uplinks_on_their_physical_network(self):
        hosts = [
            host(1, uplinks=[uplink(1, physnets=['hpc1'], bond=True)]),
            host(2, uplinks=[uplink(1, physnets=['hpc2'])]),
            host(3, uplinks=[uplink(1, tunnel=True)]),
        ]
        document = request(hosts, members=1, ports=[{'physnet': 'hpc1'}])
        found = by_name(answer(document))
        self.assertIsNone(found['c1'].reason)
        self.assertIn('is on CUSTOM_PHYSNET_HPC2', found['c2'].reason)
        self.assertIn('for tunnels only', found['c3'].reason)

    def test_exported_flavor_needs_free_devices(self):
        found = by_name(
            answer(
                request(
                    [host(1, devices=0), host(2, devices=3), host(3)],
                    network='exported',
                    members=3,
                )
            )
        )
        self.assertIn('0 free PCI device(s)', found['c1'].reason)
        self.assertEqual(3, found['c2'].slots)
        self.assertIsNone(found['c3'].slots)

    def test_note_says_that_devices_are_unknown(self):
        hosts = [host(1, devices=0), host(2, devices=3), host(3)]
        found = answer(request(hosts, network='exported', members=3))
        self.assertEqual(
            {'c1': False, 'c2': False, 'c3': True},
            {item.name: item.devices_unknown for item in found.hosts},
        )
        (note,) = found.notes
        self.assertIn('unknown for 1 of 3 host(s)', note)
        # Where none are asked for, it does not matter.
        found = answer(request(hosts))
        self.assertEqual((), found.notes)
        self.assertFalse(any(item.devices_unknown for item in found.hosts))

    def test_claimed_uplinks_are_not_listed(self):
        uplinks = [uplink(0, used=1), uplink(1)]
        found = by_name(answer(request([host(1, uplinks)], members=1)))
        self.assertEqual(('NIC eth1 on bridge br1',), found['c1'].uplinks)
        # A shared bridge that nothing is claimed of always serves.
        shared = [uplink(0, kind='shared', used=1)]
        asked = request([host(1, shared)], members=1, network=None)
        asked['flavor']['extra_specs'] = {'vhpc:network': 'shared'}
        self.assertEqual(
            ('NIC eth0 on bridge br0',), answer(asked).hosts[0].uplinks
        )

    def test_note_says_that_flavor_has_no_vhpc_specs(self):
        found = answer(request([host(1)], network=None))
        (note,) = found.notes
        self.assertIn('no vhpc: extra specs', note)
        document = request([host(1)], network=None)
        document['flavor']['extra_specs'] = {'vhpc:workload': 'general'}
        self.assertEqual((), answer(document).notes)

    def test_note_says_that_members_are_in_a_cell_that_does_not_answer(self):
        found, hosts = read(request([host(1)], members=1), now_s=NOW_S)
        found = dataclasses.replace(found, unlocated=2, policy='affinity')
        (note,) = explain.explain(found.question(hosts, NOW_S)).notes
        self.assertIn('where 2 member(s) run', note)

    def test_slots_count_several_devices_per_member(self):
        document = request(
            [host(1, devices=5), host(2, devices=1)],
            network='exported',
            members=2,
        )
        document['flavor']['extra_specs']['pci_passthrough:alias'] = 'nic:2'
        found = by_name(answer(document))
        self.assertEqual(2, found['c1'].slots)
        self.assertIn('2 are needed', found['c2'].reason)

    def test_reason_of_nova_precedes_that_of_the_filter(self):
        down = [uplink(0, mbps=0, slots=0)]
        found = by_name(
            answer(
                request(
                    [
                        host(1, nova_lack='it is disabled'),
                        host(2, nova_lack='it is disabled', uplinks=down),
                        host(3, uplinks=down),
                        host(4),
                    ],
                    members=1,
                )
            )
        )
        self.assertEqual(
            {'c1': 'nova', 'c2': 'nova', 'c3': 'filter', 'c4': None},
            {name: item.rejected_by for name, item in found.items()},
        )
        self.assertEqual('it is disabled', found['c1'].reason)
        self.assertEqual(
            f'it is disabled; the filter would reject it, too: '
            f'{found["c3"].reason}',
            found['c2'].reason,
        )

    def test_stale_topology_counts_as_unknown(self):
        found = by_name(
            answer(
                request(
                    [
                        host(1, published_minutes_ago=10),
                        host(2, published_minutes_ago=30),
                    ],
                    members=1,
                )
            )
        )
        self.assertIsNone(found['c1'].reason)
        self.assertIn('last published 29 minutes ago', found['c2'].reason)

    def test_every_configuration_has_a_passing_host(self):
        uplinks = [
            uplink(1, 'shared', slots=8),
            uplink(2, 'shared', slots=8),
            uplink(3),
            uplink(4),
        ]
        for network in (None, *extra_specs.NETWORKS):
            found = answer(
                request(
                    [host(n, uplinks=uplinks, devices=2) for n in range(4)],
                    network=network,
                )
            )
            self.assertIsNone(found.placement.infeasible_reason, network)
            self.assertEqual(4, sum(h.planned for h in found.hosts))
            self.assertEqual((), found.flaws)

    def test_flaws_of_the_flavor_are_listed(self):
        document = request([host(1)])
        del document['flavor']['extra_specs'][
            'resources_uplink:CUSTOM_VHPC_UPLINK'
        ]
        found = answer(document)
        self.assertIn('resources_uplink', found.flaws[0])
        self.assertIn('requests no uplink', found.hosts[0].reason)


class PlanTest(base.TestCase):
    def test_planned_hosts_come_first_with_the_highest_weights(self):
        found = answer(request([host(n) for n in range(6)], members=3))
        weights = [item.weight for item in found.hosts]
        self.assertEqual(sorted(weights, reverse=True), weights)
        planned = [item.planned for item in found.hosts]
        self.assertEqual([1, 1, 1, 0, 0, 0], planned)
        self.assertEqual(1.0, weights[0])
        self.assertGreater(weights[2], 0.85)
        self.assertLess(weights[3], 0.55)

    def test_ram_limits_the_plan(self):
        uplinks = [uplink(0, 'shared', slots=8)]
        hosts = [
            host(n, uplinks=uplinks, free_ram_mb=2 * 2048) for n in range(3)
        ]
        found = answer(request(hosts, network='shared', members=4))
        self.assertEqual([2, 2, 0], [item.planned for item in found.hosts])

    def test_members_on_full_hosts_count_for_the_plan(self):
        hosts = [
            host(0, switch='s2', nova_lack='it is full'),
            host(1),
            host(2, switch='s2'),
        ]
        group = {'policy': 'soft-affinity', 'existing': {'c0': 2}}
        found = answer(request(hosts, members=1, group=group))
        self.assertEqual({'c2': 1}, found.placement.assignments)

    def test_rejected_hosts_come_last(self):
        hosts = [host(n, uplinks=0 if n == 1 else 1) for n in (3, 1, 2)]
        hosts[0]['uplinks'][0]['mbps'] = 1000
        found = answer(request(hosts, members=1))
        self.assertEqual(
            [('c2', 1), ('c3', 0), ('c1', 0)],
            [(item.name, item.planned) for item in found.hosts],
        )

    def test_rail_and_uplink_of_each_planned_member_are_named(self):
        def on_rails(*taken):
            return [
                uplink(n, rail=f'10.{n}.0.0/24', used=int(n in taken))
                for n in (1, 2)
            ]

        hosts = [host(n, uplinks=on_rails(1 + n % 2)) for n in range(4)]
        hosts += [host(n, uplinks=on_rails(2)) for n in range(4, 8)]
        document = request(hosts, group={'policy': 'anti-affinity'})
        found = answer({**document, 'tunneled': True})
        planned = [item for item in found.hosts if item.planned]
        self.assertEqual(4, len(planned))
        for item in planned:
            self.assertEqual(('10.1.0.0/24',), item.rails)
            self.assertEqual(('NIC eth1 on bridge br1',), item.planned_uplinks)
            self.assertEqual('encap_ip', item.steered_by)
        plan = found.as_dict()['plan']
        self.assertEqual(0.0, plan['stray_share'])
        self.assertEqual(
            {item.name: ['10.1.0.0/24'] for item in planned}, plan['rails']
        )
        # Of other networks, rails are not looked at.
        self.assertEqual({}, answer(document).as_dict()['plan']['rails'])

    def test_rail_of_running_members_is_joined(self):
        hosts = [
            host(
                n,
                uplinks=[
                    uplink(k, rail=f'10.{k}.0.0/24', used=int(n == 0))
                    for k in (1, 2)
                ],
            )
            for n in range(3)
        ]
        for rail in ('10.1.0.0/24', '10.2.0.0/24'):
            found = answer(
                request(
                    hosts,
                    members=1,
                    tunneled=True,
                    group={
                        'policy': 'anti-affinity',
                        'existing': {'c0': 1},
                        'rails': {'c0': {rail: 1}},
                    },
                )
            )
            (planned,) = (item for item in found.hosts if item.planned)
            self.assertEqual((rail,), planned.rails)

    def test_share_of_stray_frames_is_given(self):
        hosts = [
            host(
                n,
                uplinks=[
                    uplink(1, rail=f'10.{n}.0.0/24'),
                    uplink(2, rail='10.9.0.0/24', used=1),
                ],
            )
            for n in range(2)
        ]
        document = request(
            hosts,
            members=2,
            tunneled=True,
            group={'policy': 'anti-affinity'},
        )
        self.assertEqual(
            1.0, answer(document).as_dict()['plan']['stray_share']
        )

    def test_plan_takes_no_more_uplinks_than_are_free(self):
        found = answer(request([host(n, uplinks=1) for n in range(4)]))
        self.assertEqual([1] * 4, [item.planned for item in found.hosts])

    def test_reason_is_given_if_there_is_no_plan(self):
        found = answer(
            request([host(n, uplinks=1) for n in range(3)], members=4)
        )
        self.assertIn('devices and disk 3', found.placement.infeasible_reason)
        document = found.as_dict()
        self.assertIsNone(document['plan']['cost_us'])
        self.assertIsNone(document['plan']['tier'])
        json.dumps(document, allow_nan=False)

    def test_plan_respects_policy_and_running_members(self):
        found = by_name(
            answer(
                request(
                    [host(n) for n in range(4)],
                    members=3,
                    group={
                        'policy': 'anti-affinity',
                        'existing': {'c2': 1},
                    },
                )
            )
        )
        self.assertEqual(1, found['c2'].running)
        self.assertEqual(0, found['c2'].planned)
        self.assertEqual(1, found['c0'].planned)

    def test_shared_cpus_of_a_mixed_flavor_are_checked(self):
        document = request(
            [host(1, cpus=4, used_vcpus=2)], network=None, members=2
        )
        document['flavor']['extra_specs'] = {
            'vhpc:paradigm': 'openmp',
            'hw:cpu_policy': 'mixed',
            'hw:cpu_dedicated_mask': '^0',
        }
        found = answer(document)
        self.assertEqual({'c1': 2}, found.placement.assignments)
        document['flavor']['extra_specs']['hw:cpu_policy'] = 'dedicated'
        self.assertIsNotNone(answer(document).placement.infeasible_reason)

    def test_hosts_of_unknown_topology_are_planned_last(self):
        hosts = [host(0, uplinks=None), host(1), host(2)]
        document = request(
            hosts, members=4, options={'unknown_topology': 'allow'}
        )
        found = by_name(answer(document))
        self.assertTrue(found['c0'].unknown)
        self.assertEqual(0, found['c0'].planned)
        self.assertEqual(-1.0, found['c0'].weight)
        self.assertLess(0.0, found['c1'].weight)
        document['members'] = 5
        self.assertGreater(by_name(answer(document))['c0'].planned, 0)

    def test_explanation_plans_the_same_hosts_as_the_weigher(self):
        hosts = [
            host(0, weight_multiplier=-9),
            host(1),
            host(2, weight_multiplier=0),
            host(3, weight_multiplier=5),
        ]
        found = answer(request(hosts, members=4))
        self.assertEqual({'c1': 2, 'c3': 2}, found.placement.assignments)
        self.assertEqual(
            [('c2', 0.0, 0), ('c0', 1.0, -9)],
            [(h.name, h.weight, h.multiplier) for h in found.hosts[2:]],
        )
        self.assertEqual([None] * 4, [h.reason for h in found.hosts])
        # What they hold counts all the same.
        group = {'policy': 'anti-affinity', 'existing': {'c2': 1, 'c1': 1}}
        found = answer(request(hosts, members=1, group=group))
        self.assertEqual({'c3': 1}, found.placement.assignments)

    def test_plan_has_room_for_members_that_are_to_come(self):
        # c1 and c2 have two uplinks each, c3 has four under another switch.
        hosts = [
            host(1, switch='a'),
            host(2, switch='a'),
            host(3, [uplink(number) for number in range(3)], switch='b'),
        ]
        group = {'policy': 'anti-affinity', 'max_server_per_host': 4}
        alone = answer(request(hosts, members=1, group=group))
        self.assertEqual(0, alone.expected)
        for more in (
            {'cluster_members': 4},
            {'flavor': self.sized(hosts, '4')},
            # The number in the request comes first, as the hint does.
            {'cluster_members': 4, 'flavor': self.sized(hosts, '9')},
        ):
            found = answer(request(hosts, members=1, group=group, **more))
            self.assertEqual(
                {'c1': 2, 'c2': 2}, found.placement.assignments, more
            )
            self.assertEqual(3, found.expected)
        # Those that run are not planned again.
        group['existing'] = {'c1': 1}
        found = answer(
            request(hosts, members=1, group=group, cluster_members=4)
        )
        self.assertEqual(2, found.expected)
        # Room for seven only: half of the 19 are 9, of these 4.
        found = answer(
            request(
                hosts,
                members=1,
                group={'policy': 'soft-affinity'},
                cluster_members=20,
            )
        )
        self.assertEqual(4, found.as_dict()['plan']['expected'])

    def sized(self, hosts, members):
        flavor = request(hosts)['flavor']
        flavor['extra_specs']['vhpc:members'] = members
        return flavor

    def test_cluster_without_group_has_no_members_to_come(self):
        hosts = [host(1), host(2)]
        flavor = self.sized(hosts, '4')
        found = answer(request(hosts, members=1, flavor=flavor))
        self.assertEqual(0, found.expected)
        for group, size, text in (
            (None, 4, 'needs a server group'),
            ({'policy': 'soft-affinity'}, 4097, 'is more than 4096'),
        ):
            self.assertRaisesRegex(
                RequestError,
                text,
                answer,
                request(hosts, members=1, group=group, cluster_members=size),
            )

    def test_no_host_is_planned_with_multiplier_zero(self):
        document = request(
            [host(0), host(1)], options={'weight_multiplier': 0.0}
        )
        found = answer(document)
        self.assertIn(
            'multiplier of no host', found.placement.infeasible_reason
        )
        self.assertEqual(
            [(0, 0.0, 2)] * 2,
            [(h.planned, h.weight, h.capacity) for h in found.hosts],
        )
        json.dumps(found.as_dict(), allow_nan=False)
        # It is not to blame where no host passes.
        found = answer({**document, 'hosts': [host(0, uplinks=0)]})
        self.assertNotIn('multiplier', found.placement.infeasible_reason)
        # An aggregate's own counts for its hosts.
        document['hosts'][1]['weight_multiplier'] = 2
        document['members'] = 2
        self.assertEqual({'c1': 2}, answer(document).placement.assignments)

    def test_json_output_can_be_parsed(self):
        found = answer(request([host(1), host(2)]))
        document = json.loads(json.dumps(found.as_dict(), allow_nan=False))
        self.assertEqual(2, len(document['hosts']))
        self.assertEqual({'c1': 2, 'c2': 2}, document['plan']['assignments'])
        self.assertGreater(document['plan']['slowdown'], 1.0)
        self.assertAlmostEqual(
            found.placement.cost, document['plan']['cost_us'], delta=0.05
        )
        self.assertEqual('switch', document['plan']['tier'])

    def test_own_overcommit_is_named_only_where_siblings_share_cpus(self):
        for cpus, own in ((16, 0.5), (4, 2.0)):
            small = host(1, cpus=cpus, cpu_allocation_ratio=4)
            document = answer(request([small], None)).as_dict()
            self.assertEqual(own, document['plan']['own_overcommit'])

    def tiered(self, limit, members, **more):
        """Explain members for two hosts of switch s1, and one of s2."""
        document = request(
            [host(1), host(2), host(3, switch='s2', uplinks=3)],
            members=members,
            **more,
        )
        document['flavor']['extra_specs']['vhpc:max_tier'] = limit
        return answer(document)

    def test_hosts_that_do_not_hold_the_cluster_are_rejected(self):
        found = self.tiered('switch', 4)
        self.assertEqual({'c1': 2, 'c2': 2}, found.placement.assignments)
        third = by_name(found)['c3']
        self.assertEqual(
            (
                'filter',
                'switch s2 has 3 of 4 places, and vhpc:max_tier=switch',
            ),
            (third.rejected_by, third.reason),
        )
        self.assertIsNone(third.weight)

    def test_hosts_away_from_running_members_are_rejected(self):
        found = self.tiered('switch', 2, group={'existing': {'c3': 1}})
        self.assertEqual({'c3': 2}, found.placement.assignments)
        self.assertEqual(
            'vhpc:max_tier=switch, and members of its cluster run in '
            'switch s2',
            by_name(found)['c1'].reason,
        )

    def test_all_hosts_are_rejected_if_no_part_holds_the_cluster(self):
        found = self.tiered('switch', 5)
        self.assertEqual({'filter'}, {h.rejected_by for h in found.hosts})
        for text in found.placement.infeasible_reason, found.hosts[0].reason:
            self.assertIn('the best, switch s1, has 4 (CPUs give', text)
            self.assertIn('uplinks, devices and disk 4)', text)
        self.assertEqual(
            5, sum(self.tiered('rack', 5).placement.assignments.values())
        )

    def test_predicted_run_time_grows_with_the_tier(self):
        slowdowns = []
        for tier, parts in (
            ('switch', ()),
            ('rack', ('switch',)),
            ('all', ('switch', 'rack')),
        ):
            hosts = [
                host(number, **{part: f'{part}{number}' for part in parts})
                for number in (1, 2)
            ]
            plan = answer(request(hosts)).as_dict()['plan']
            self.assertEqual({'c1': 2, 'c2': 2}, plan['assignments'])
            self.assertEqual(tier, plan['tier'])
            slowdowns.append(plan['slowdown'])
        switch, rack, all_ = slowdowns
        # Messages to the other host take one time, two and four times as long.
        self.assertGreater(rack, switch)
        self.assertAlmostEqual(2 * (rack - switch), all_ - rack, delta=0.002)


class ReadTest(base.TestCase):
    def refusal(self, **changes):
        document = copy.deepcopy(request([host(1)]))
        for place, value in changes.items():
            at = document
            *path, last = place.split('__')
            for step in path:
                at = at[int(step) if step.isdigit() else step]
            at[last] = value
        return str(self.assertRaises(RequestError, read, document))

    def test_error_names_place_and_value_of_each_mistake(self):
        for changes, text in (
            (
                {'members': 0},
                'request.members: 0 is less than the minimum of 1',
            ),
            (
                {'members': True},
                "request.members: True is not of type 'integer'",
            ),
            (
                {'members': 2.0},
                "request.members: 2.0 is not of type 'integer'",
            ),
            (
                {'membres': 2},
                "request: Additional properties are not allowed ('membres'",
            ),
            (
                {'flavor': 7},
                "request.flavor: 7 is not of type 'string', 'object'",
            ),
            (
                {'flavor__vcpus': 'two'},
                "request.flavor.vcpus: 'two' is not of type",
            ),
            (
                {'flavor__vcpus': 10**7},
                '10000000 is greater than the maximum of 1000000',
            ),
            (
                {'group': {'policy': 'near'}},
                "request.group.policy: 'near' is not one of",
            ),
            (
                {'group': {'rails': {'c1': {'7': 1}}}},
                "request.group.rails.c1: '7' is no subnet",
            ),
            (
                {'group': {'existing': {'\ud812': 1}}},
                "request.group.existing: '\\ud812' is not of type",
            ),
            (
                {'hosts': {}},
                "request.hosts: {} is not of type 'array', 'null'",
            ),
            ({'hosts': [host(1), host(1)]}, 'request.hosts: more than one c1'),
            ({'hosts__0__cpus': -1}, 'request.hosts[0].cpus: -1 is less than'),
            (
                {'hosts__0__cpus': 10**900},
                '000 is greater than the maximum of 1000000000000',
            ),
            (
                {'hosts__0__free_ram_mb': float('nan')},
                'free_ram_mb: nan is not of type',
            ),
            (
                {'hosts__0__free_ram_mb': float('inf')},
                'free_ram_mb: inf is not of type',
            ),
            (
                {'hosts__0__name': ''},
                "request.hosts[0].name: '' should be non-empty",
            ),
            (
                {'hosts__0__name': 'c\ud8001'},
                "hosts[0].name: 'c\\ud8001' is not of type",
            ),
            (
                {'hosts__0__uplinks__1__kind': 'odd'},
                "request.hosts[0].uplinks[1].kind: 'odd' is not",
            ),
            (
                {'hosts__0__uplinks__0__rail': '10.1.0.1/24'},
                "request.hosts[0].uplinks[0].rail: '10.1.0.1/24' is no",
            ),
            (
                {'hosts__0__uplinks': [uplink(2), uplink(1), uplink(2)]},
                'uplinks: more than one NIC eth2 on bridge br2',
            ),
            (
                {'options': {'max_overcommit': {'openmp': '1,5'}}},
                "request.options.max_overcommit: 'openmp:1,5' is",
            ),
            (
                {'flavor__extra_specs': {'alias': 'a:' * 200}},
                "request.flavor.extra_specs.alias: 'a:a:",
            ),
        ):
            with self.subTest(text):
                error = self.refusal(**changes)
                self.assertIn(text, error)
                self.assertLess(len(error), 500)
        self.assertEqual(
            "request: 'flavor' is a required property",
            str(self.assertRaises(RequestError, read, {})),
        )
        self.assertEqual(
            "request: [] is not of type 'object'",
            str(self.assertRaises(RequestError, read, [])),
        )

    def test_names_of_flavor_and_group_are_kept_for_lookup(self):
        found, hosts = read({'flavor': 'hpc', 'group': 'mpi', 'members': 2})
        self.assertEqual('hpc', found.flavor_name)
        self.assertEqual('mpi', found.group_name)
        self.assertIsNone(hosts)

    def test_default_options_equal_those_of_the_scheduler(self):
        from oslo_config import cfg

        from nova_vhpc.conf import scheduler

        conf = cfg.ConfigOpts()
        scheduler.register_opts(conf)
        group = conf.vhpc_scheduler
        found, _ = read({'flavor': 'hpc'})
        options = found.options
        self.assertEqual(group.spare_cpus, options.spare_cpus)
        self.assertEqual(group.max_overcommit, options.max_overcommit)
        self.assertEqual(group.topology_max_age, options.topology_max_age_s)
        self.assertEqual(group.weight_of_unknown, options.weight_of_unknown)
        self.assertEqual(
            group.unknown_topology == 'allow', options.allow_unknown
        )
