# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


import itertools

from hypothesis import given
from hypothesis import strategies as st

from nova_vhpc.flavor import extra_specs, request_groups, validation
from nova_vhpc.scheduler.hosts import network_fit, ports, requirements
from nova_vhpc.scheduler.session import candidates
from nova_vhpc.scheduler.sources import neutron_uplink, snapshot
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.flavor.flavors import (
    RECIPES,
    SEPARATE,
    SHARED,
    UPLINK,
    recipe,
)
from nova_vhpc.topology import model

TRAITS = {
    network_fit.SHARED: model.TRAIT_SHARED,
    network_fit.SEPARATE: model.TRAIT_SEPARATE,
}


class ProblemsTest(base.TestCase):
    def test_recipes_have_no_problem(self):
        for name in RECIPES:
            self.assertEqual([], validation.problems(recipe(name)))

    def test_flavor_without_vhpc_keys_has_no_problem(self):
        self.assertEqual([], validation.problems({'hw:cpu_policy': 'shared'}))

    def test_missing_request_group_is_reported(self):
        specs = {'vhpc:network': 'separate'}
        found = ' '.join(validation.problems(specs, ports=False))
        self.assertIn(f'{UPLINK}=1', found)
        self.assertIn(SEPARATE, found)

    def test_request_group_of_another_configuration_is_reported(self):
        specs = {**recipe('shared'), 'vhpc:network': 'separate'}
        found = ' '.join(validation.problems(specs))
        self.assertIn(f'{SHARED} does not belong', found)

    def test_trait_without_resources_is_reported(self):
        found = validation.problems({SHARED: 'required'})
        self.assertIn('Placement would refuse it', found[0])

    def test_invalid_value_is_reported(self):
        found = validation.problems({'vhpc:workload': 'batch'})
        self.assertIn("'batch'", found[0])

    def test_exported_may_get_its_devices_from_ports(self):
        specs = {'vhpc:network': 'exported'}
        for known in (None, True):
            self.assertEqual([], validation.problems(specs, sriov_ports=known))
        (found,) = validation.problems(specs, sriov_ports=False)
        self.assertIn('exported without pci_passthrough:alias', found)

    def test_uplinks_may_come_with_ports(self):
        for network in RECIPES:
            specs = {'vhpc:network': network}
            for known in (None, True):
                self.assertEqual([], validation.problems(specs, ports=known))

    def test_two_request_groups_without_group_policy_are_reported(self):
        specs = recipe('multiple-shared')
        del specs['group_policy']
        (found,) = validation.problems(specs)
        self.assertIn('several request groups without group_policy', found)

    def test_numbered_groups_of_another_configuration_are_reported(self):
        specs = recipe('multiple-shared', physnet='fast')
        found = validation.problems({**specs, 'vhpc:network': 'separate'})
        self.assertEqual(
            [
                key
                for key in sorted(specs)
                if '_uplink' in key and 'PHYSNET' not in key
            ],
            [
                one.partition(' ')[0]
                for one in found
                if 'does not belong to vhpc:network=separate' in one
            ],
        )
        # There is no advice beside a problem.
        self.assertEqual(
            [], validation.advice({**specs, 'vhpc:network': 'separate'})
        )


class AgreementTest(base.TestCase):
    """Problems are reported if and only if filter or Placement refuses."""

    UPLINKS = tuple(
        snapshot.UplinkState(f'{kind}{n}', kind, f'{kind}{n}', 'n', 1000, 4, 0)
        for kind in network_fit.BridgeKind
        for n in range(2)
    )

    NEUTRON_UPLINKS = tuple(
        neutron_uplink.NeutronUplink(
            f'uuid{n}',
            f'br{n}',
            frozenset([f'CUSTOM_PHYSNET_{n}']),
            {neutron_uplink.EGRESS: neutron_uplink.Bandwidth(1000, 0)},
        )
        for n in range(2)
    )
    PORTS = tuple(
        ports.PortRequest(
            uplink.uuid, {neutron_uplink.EGRESS: 1000}, uplink.traits
        )
        for uplink in NEUTRON_UPLINKS
    )

    def candidates(self, specs):
        """Yield the candidates of a host with all kinds of bridges."""
        groups = sorted(request_groups.suffixes(specs))
        choices = []
        for suffix in groups:
            required = {
                key.partition(':')[2]
                for key in specs
                if key.startswith(f'trait{suffix}:')
            }
            choices.append(
                [
                    uplink.uuid
                    for uplink in self.UPLINKS
                    if required <= {TRAITS[uplink.kind]}
                ]
            )
        for chosen in itertools.product(*choices):
            policy = specs.get('group_policy')
            if len(set(chosen)) == len(chosen) or policy == 'none':
                yield {
                    'allocations': {
                        uuid: {'resources': {model.UPLINK: 1}}
                        for uuid in chosen
                    }
                }

    def passes(self, specs, port_requests):
        """Return whether a host with all kinds of uplinks takes a member."""
        groups = request_groups.suffixes(specs)
        if any(
            key.startswith('trait_')
            and key.partition(':')[0].removeprefix('trait') not in groups
            for key in specs
        ) or (len(groups) > 1 and 'group_policy' not in specs):
            return False
        wanted = requirements.of_flavor(
            specs, 1, devices=1, port_requests=port_requests
        )
        offers = list(self.candidates(specs))
        topology = snapshot.HostUplinks(
            self.UPLINKS, neutron_uplinks=self.NEUTRON_UPLINKS
        )
        offered = (
            candidates.offered(offers) if wanted.requested_uplinks else None
        )
        view = requirements.HostView(8, 0, topology, offered)
        fit_result = requirements.evaluate(view, wanted)
        if not fit_result.passes or not wanted.requested_uplinks:
            return fit_result.passes
        reservations = candidates.UplinkReservations(
            fit_result.uplinks, wanted.rule
        )
        return bool(reservations.order(offers))

    @given(
        st.sampled_from([None, *extra_specs.NETWORKS]),
        st.sets(
            st.sampled_from(
                [
                    f'{kind}_uplink{number}:{name}'
                    for number in ('', '1', '2')
                    for kind, name in (
                        ('resources', model.UPLINK),
                        ('trait', model.TRAIT_SHARED),
                        ('trait', model.TRAIT_SEPARATE),
                    )
                ]
            )
        ),
        st.sampled_from([None, 'none', 'isolate']),
        st.booleans(),
    )
    def test_specs_have_a_problem_iff_refused(
        self, name, keys, policy, has_ports
    ):
        specs = {
            key: '1' if key.startswith('resources') else 'required'
            for key in keys
        }
        if name:
            specs['vhpc:network'] = name
        if policy:
            specs['group_policy'] = policy
        found = validation.problems(specs, ports=has_ports)
        passes = self.passes(specs, self.PORTS if has_ports else ())
        self.assertEqual(passes, not found, found)

    def test_isolated_uplinks_are_advised_against(self):
        specs = {**recipe('multiple-shared'), 'vhpc:spare_cpus': '1'}
        self.assertEqual([], validation.advice(specs))
        specs['group_policy'] = 'isolate'
        self.assertEqual([], validation.problems(specs))
        (found,) = validation.advice(specs)
        self.assertIn('pci_passthrough:alias', found)
        self.assertIn('group_policy=none', found)

    def test_network_without_request_group_gets_advice_only(self):
        for name in ('shared', 'multiple-shared'):
            specs = {'vhpc:network': name}
            self.assertEqual([], validation.problems(specs))
            (found,) = validation.advice(specs)
            self.assertIn('members of an uplink are not counted', found)
            self.assertIn('openstack port create', found)

    def test_own_uplink_without_request_group_gets_the_recipe_for_ports(self):
        for name in ('separate', 'shared-separate'):
            (found,) = validation.advice({'vhpc:network': name})
            self.assertIn('as large as the link', found)
            self.assertIn('--network instead of --port', found)
            self.assertIn('Servers without such a port find no host', found)

    def test_other_request_group_than_that_of_the_recipe_gets_advice(self):
        specs = {
            'vhpc:network': 'separate',
            'resources_own:CUSTOM_VHPC_UPLINK': '1',
        }
        self.assertEqual([], validation.problems(specs))
        self.assertIn(f'{UPLINK}=1', validation.advice(specs)[0])

    def test_request_group_without_network_gets_advice(self):
        specs = RECIPES['shared']
        self.assertEqual([], validation.problems(specs))
        self.assertIn('without vhpc:network', validation.advice(specs)[0])


class AdviceTest(base.TestCase):
    def test_overcommitted_openmp_gets_advice(self):
        # NPC'09 section 4.2.
        for paradigm in ('openmp', 'hybrid'):
            specs = recipe(paradigm=paradigm, max_overcommit='1.5')
            self.assertIn("NPC'09", validation.advice(specs)[0])
        for paradigm, most in (('mpi', '1.5'), ('openmp', '1')):
            specs = recipe(paradigm=paradigm, max_overcommit=most)
            self.assertEqual([], validation.advice(specs))

    def test_parallel_shared_without_spare_cpu_gets_advice(self):
        # HPCVirt'09 section 6.4.
        specs = recipe('shared', workload='parallel', spare_cpus='0')
        self.assertIn('30-35%', validation.advice(specs)[0])


class AmountTest(base.TestCase):
    def test_invalid_or_negative_amounts_count_as_zero(self):
        for text, uplinks in (('2', 2), ('-1', 0), ('many', 0)):
            self.assertEqual(
                uplinks,
                request_groups.requested_uplinks(
                    {UPLINK: text, 'resources2:CUSTOM_VHPC_UPLINK': '0'}
                ),
            )
