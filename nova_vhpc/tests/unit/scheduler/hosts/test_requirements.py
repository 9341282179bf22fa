# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

from oslotest import base

from nova_vhpc.flavor import request_groups
from nova_vhpc.scheduler.hosts import ports, requirements
from nova_vhpc.scheduler.planner.model import NO_LIMIT
from nova_vhpc.scheduler.sources import snapshot
from nova_vhpc.topology import model

SEPARATE = {
    'vhpc:network': 'separate',
    'resources_uplink:CUSTOM_VHPC_UPLINK': '1',
}


def uplink(number, slots=1, used=0, mbps=1000):
    return snapshot.UplinkState(
        f'uuid{number}',
        model.BridgeKind.SEPARATE,
        f'br{number}',
        f'eth{number}',
        mbps,
        slots,
        used,
    )


def host(*uplinks, cpus=8, used=0, stamp=None, offered=None):
    return requirements.HostView(
        cpus, used, snapshot.HostUplinks(uplinks, stamp), offered
    )


class RequirementsTest(base.BaseTestCase):
    def test_uplinks_of_all_request_groups_are_added_up(self):
        self.assertEqual(
            4,
            request_groups.requested_uplinks(
                {
                    'resources:CUSTOM_VHPC_UPLINK': '1',
                    'resources_a:CUSTOM_VHPC_UPLINK': '2',
                    # Nova parses it the same way.
                    'resources_b-1:CUSTOM_VHPC_UPLINK': ' 1',
                    'resources_c:CUSTOM_VHPC_UPLINK': 'many',
                    'resources_d:CUSTOM_OTHER': '8',
                    # A digit to str.isdigit(), but no number to int().
                    'resources_e:CUSTOM_VHPC_UPLINK': '\u00b2',
                    'resources_f:CUSTOM_VHPC_UPLINK': '-1',
                    'trait_a:CUSTOM_VHPC_UPLINK': 'required',
                }
            ),
        )

    def test_default_limits_depend_on_the_paradigm(self):
        defaults = {'openmp': 1.0, 'hybrid': 1.5}
        for paradigm, expected in (
            ('openmp', 1.0),
            ('hybrid', 1.5),
            ('mpi', requirements.UNLIMITED),
        ):
            wanted = requirements.of_flavor(
                {'vhpc:paradigm': paradigm},
                1,
                default_max_overcommit=defaults,
            )
            self.assertEqual(expected, wanted.max_overcommit)

    def test_limit_of_the_flavor_overrides_the_default(self):
        wanted = requirements.of_flavor(
            {'vhpc:max_overcommit': '3', 'vhpc:spare_cpus': '0'},
            1,
            default_spare_cpus=2,
            default_max_overcommit={'mpi': 1.0},
        )
        self.assertEqual((0, 3.0), (wanted.spare_cpus, wanted.max_overcommit))

    def test_spare_cpu_limits_the_other_cpus_to_no_overcommit(self):
        wanted = requirements.of_flavor({'vhpc:spare_cpus': '1'}, 1)
        self.assertEqual(1.0, wanted.max_overcommit)

    def test_invalid_overcommit_limit_leaves_no_host(self):
        for text in ('0', '0.0', '-1', 'nan', 'inf', 'two', ''):
            with self.subTest(text):
                specs = {
                    'vhpc:paradigm': 'openmp',
                    'vhpc:max_overcommit': text,
                }
                wanted = requirements.of_flavor(
                    specs, 2, default_max_overcommit={'openmp': 1.0}
                )
                fit_result = requirements.evaluate(host(), wanted)
                self.assertIn(
                    f'vhpc:max_overcommit={text}, which leaves no host',
                    fit_result.reason,
                )

    def test_invalid_tier_limit_leaves_no_host(self):
        wanted = requirements.of_flavor({'vhpc:max_tier': 'room'}, 2)
        self.assertEqual(
            'the flavor says vhpc:max_tier=room, which leaves no host: it '
            'takes one of: host, switch, rack',
            requirements.evaluate(host(), wanted).reason,
        )

    def test_flaw_says_what_to_change(self):
        for specs, words in (
            ({'vhpc:network': 'separate'}, 'add resources_uplink:'),
            ({'vhpc:network': 'shared-separate'}, 'requests no uplink'),
            ({'vhpc:network': 'exported'}, 'pci_passthrough:alias'),
            ({'vhpc:network': 'separate'}, 'openstack port create'),
            ({**SEPARATE, 'vhpc:network': 'multiple-shared'}, '2 would be'),
            (
                {**SEPARATE, 'resources_b:CUSTOM_VHPC_UPLINK': '1'},
                'requests 2 uplink(s), 1 would be right',
            ),
        ):
            with self.subTest(specs):
                wanted = requirements.of_flavor(specs, 1)
                fit_result = requirements.evaluate(host(uplink(1)), wanted)
                self.assertIn(words, fit_result.reason)

    def test_ports_bring_uplinks_unless_the_flavor_requests_them(self):
        one = ports.PortRequest('a', {}, frozenset())
        for specs, requests, used in (
            ({'vhpc:network': 'separate'}, (one,), True),
            ({'vhpc:network': 'shared'}, (one,), True),
            ({'vhpc:min_link_mbps': '10'}, (one,), True),
            # Two are needed.
            ({'vhpc:network': 'multiple-shared'}, (one,), False),
            ({'vhpc:network': 'multiple-shared'}, (one, one), True),
            (SEPARATE, (one,), False),
            ({'vhpc:network': 'exported'}, (one,), False),
            ({'vhpc:workload': 'parallel'}, (one,), False),
        ):
            with self.subTest(specs):
                wanted = requirements.of_flavor(
                    specs, 1, devices=1, port_requests=requests
                )
                self.assertIsNone(wanted.flaw)
                self.assertEqual(
                    requests if used else (), wanted.port_requests
                )

    def test_topology_is_needed_only_if_requested(self):
        for specs, needs in (
            ({'vhpc:workload': 'parallel'}, False),
            ({'vhpc:network': 'exported'}, False),
            ({'vhpc:min_link_mbps': '10'}, True),
            ({'vhpc:network': 'shared'}, True),
        ):
            wanted = requirements.of_flavor(specs, 1, devices=1)
            self.assertEqual(needs, wanted.needs_topology, specs)
            self.assertEqual(
                not needs,
                requirements.evaluate(
                    requirements.HostView(8, 0), wanted
                ).passes,
            )


class EvaluateTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.requirements = requirements.of_flavor(SEPARATE, 2)

    def evaluate(self, view, **limits):
        return requirements.evaluate(
            view, self.requirements, requirements.Limits(**limits)
        )

    def test_host_with_free_uplinks_passes(self):
        slow = uplink(2, mbps=100)
        fit_result = self.evaluate(host(uplink(1), slow))
        self.assertTrue(fit_result.passes)
        self.assertEqual(2, fit_result.slots)
        self.assertEqual(100, fit_result.link_mbps)

    def test_offered_candidates_override_the_snapshot(self):
        # The uplink is used in the snapshot, but Placement offers it.
        view = host(uplink(1, used=1), offered={'uuid1'})
        self.assertEqual(1, self.evaluate(view).slots)
        # The uplink is free in the snapshot, but Placement does not offer it.
        view = host(uplink(1), offered={'other'})
        self.assertIn('Placement offers none', self.evaluate(view).reason)

    def test_host_has_as_many_slots_as_free_uplink_slots(self):
        self.assertEqual(
            7,
            self.evaluate(
                host(
                    uplink(1, slots=8, used=3),
                    uplink(2, slots=3, used=1),
                    uplink(3, slots=8),
                    offered=frozenset(('uuid1', 'uuid2')),
                )
            ).slots,
        )

    def test_link_speed_is_that_of_claimable_uplinks_only(self):
        """Slow uplinks that are used or not offered do not count."""
        slow, fast = uplink(1, used=1), uplink(2, mbps=10000)
        faster = uplink(3, mbps=25000)
        for view, mbps in (
            (host(slow, fast, faster), 10000),
            (host(uplink(1), fast, offered={'uuid2'}), 10000),
            (host(uplink(1), fast, offered={'uuid3'}), 0),
            (host(slow, fast, offered={'uuid1', 'uuid2'}), 1000),
            (host(uplink(1), fast, faster), 1000),
        ):
            self.assertEqual(mbps, self.evaluate(view).link_mbps)

    def test_taken_uplinks_are_named(self):
        reason = self.evaluate(host(uplink(1, used=1))).reason
        self.assertIn('NIC eth1 on bridge br1 has 1 of 1 slot(s)', reason)

    def test_slots_are_unlimited_for_a_flavor_without_request_group(self):
        self.requirements = requirements.of_flavor(
            {'vhpc:min_link_mbps': '10'}, 2
        )
        fit_result = self.evaluate(host(uplink(1, used=1)))
        self.assertEqual(
            (None, NO_LIMIT), (fit_result.reason, fit_result.slots)
        )

    def test_cpu_limit_excludes_spare_cpus(self):
        self.requirements = requirements.of_flavor(
            {'vhpc:spare_cpus': '2', 'vhpc:max_overcommit': '1.5'}, 3
        )
        # (8 - 2) * 1.5 = 9 vCPUs.
        self.assertTrue(self.evaluate(host(used=6)).passes)
        reason = self.evaluate(host(used=7)).reason
        self.assertIn('10 vCPUs would share 6 CPUs (8 less 2 spare)', reason)
        self.assertIn('vhpc:max_overcommit is 1.5', reason)

    def test_overcommit_limit_between_floats_is_reached(self):
        # 100 * 1.15 is 114.99999999999999.
        self.requirements = requirements.of_flavor(
            {'vhpc:max_overcommit': '1.15'}, 5
        )
        self.assertTrue(self.evaluate(host(cpus=100, used=110)).passes)
        self.assertFalse(self.evaluate(host(cpus=100, used=111)).passes)

    def test_overcommit_limit_close_to_an_integer_is_not_exceeded(self):
        wanted = requirements.of_flavor({'vhpc:max_overcommit': '1.24'}, 1)
        # 8 * 1.24 is 9.92.
        for used, fits in ((8, True), (9, False)):
            fit_result = requirements.evaluate(host(used=used), wanted)
            self.assertIs(fits, fit_result.passes)

    def test_reason_names_the_source_of_the_cpu_limit(self):
        for specs, options, words in (
            ({'vhpc:max_overcommit': '1'}, {}, '; vhpc:max_overcommit is 1'),
            (
                {'vhpc:paradigm': 'openmp'},
                {'default_max_overcommit': {'openmp': 1.5}},
                '; [vhpc_scheduler] max_overcommit of openmp is 1.5',
            ),
            (
                {'vhpc:workload': 'parallel'},
                {'default_spare_cpus': 1},
                '; with spare CPUs and no vhpc:max_overcommit the limit is 1',
            ),
        ):
            self.requirements = requirements.of_flavor(specs, 2, **options)
            reason = self.evaluate(host(used=11)).reason
            self.assertTrue(reason.endswith(words), reason)

    def test_host_without_cpus_does_not_pass(self):
        self.assertIn('reported no CPUs', self.evaluate(host(cpus=0)).reason)

    def test_host_of_unknown_topology_passes_only_if_allowed(self):
        view = requirements.HostView(8, 0)
        self.assertIn('is nova-vhpc-agent running', self.evaluate(view).reason)
        fit_result = self.evaluate(view, allow_unknown=True)
        self.assertEqual((True, True), (fit_result.passes, fit_result.unknown))
        self.assertEqual(NO_LIMIT, fit_result.slots)
        # Members can claim only the uplinks that Placement offers.
        view = view._replace(offered={'uuid1', 'uuid2'})
        self.assertEqual(2, self.evaluate(view, allow_unknown=True).slots)

    def test_stale_topology_counts_as_unknown(self):
        limits = {'now_minutes': 1000.0, 'max_age_s': 1200}
        fresh = host(uplink(1), stamp=979)
        stale = host(uplink(1), stamp=978)
        self.assertTrue(self.evaluate(fresh, **limits).passes)
        reason = self.evaluate(stale, **limits).reason
        self.assertIn('last published 21 minutes ago', reason)
        self.assertTrue(
            self.evaluate(stale, allow_unknown=True, **limits).unknown
        )
        self.assertTrue(self.evaluate(stale, now_minutes=1000.0).passes)

    def test_topology_without_a_stamp_is_never_stale(self):
        view = host(uplink(1))
        self.assertTrue(
            self.evaluate(view, now_minutes=1e6, max_age_s=60).passes
        )

    def test_no_host_passes_without_a_snapshot(
        self,
    ):
        fit_result = self.evaluate(
            host(uplink(1)), snapshot_reason='it is away', allow_unknown=True
        )
        self.assertEqual('it is away', fit_result.reason)
