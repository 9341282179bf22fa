# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

from nova import objects
from nova.scheduler.filters import aggregate_instance_extra_specs

from nova_vhpc.explain.cloud import host_aggregates, nova_options
from nova_vhpc.scheduler.hosts import state as hosts
from nova_vhpc.scheduler.planner import host_weights
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.scheduler import world


class MultipliersTest(base.TestCase):
    def test_multipliers_equal_those_of_the_weigher(self):
        """Whatever operators write, explain and weigher agree."""
        (state,) = world.world.World(1).states
        for texts in (
            (),
            ('0',),
            ('-9',),
            ('5', '-9'),
            ('-9', '5', '7'),
            (' 2.5 ',),
            ('1e3',),
            ('much',),
            ('much', '5'),
            ('5', 'much'),
            ('nan',),
            ('inf',),
            ('-inf', '5'),
            ('inf', '5'),
            ('', '5'),
        ):
            aggregates = [
                {
                    'hosts': [state.host],
                    'metadata': {host_weights.MULTIPLIER_KEY: text},
                }
                for text in texts
            ]
            aggregates.append({'hosts': [state.host], 'metadata': {}})
            state.aggregates = [
                objects.Aggregate(id=number, **aggregate)
                for number, aggregate in enumerate(aggregates)
            ]
            self.assertEqual(
                hosts.weight_multiplier(state, 20.0),
                host_aggregates.multipliers(aggregates).get(state.host, 20.0),
                texts,
            )


class RejectionsTest(base.TestCase):
    def reason(self, specs, *aggregates, **options):
        """Return why a host in these aggregates is rejected."""
        rejections = host_aggregates.Rejections(
            [
                {'name': 'gpus', 'hosts': ['c1'], 'metadata': metadata}
                for metadata in aggregates
            ],
            specs,
            nova_options.NovaOptions(**options),
        )
        return rejections.reason('c1')

    def test_metadata_is_missing_exactly_if_nova_s_filter_misses_it(self):
        (state,) = world.world.World(1).states
        name = nova_options.AGGREGATE_SPECS_FILTER
        nova_filter = getattr(aggregate_instance_extra_specs, name)()
        for specs, aggregates in (
            ({'group_policy': 'none'}, []),
            ({'group_policy': 'none'}, [{'group_policy': 'none'}]),
            ({'group_policy': 'none'}, [{}, {'group_policy': 'none'}]),
            ({'vhpc:network': 'shared'}, []),
            ({'aggregate_instance_extra_specs:ssd': 'true'}, [{}]),
            ({'aggregate_instance_extra_specs:ssd': 'a'}, [{'ssd': 'a'}]),
        ):
            state.aggregates = [
                objects.Aggregate(id=number, hosts=['c1'], metadata=metadata)
                for number, metadata in enumerate(aggregates)
            ]
            spec = objects.RequestSpec(
                flavor=objects.Flavor(extra_specs=specs)
            )
            reason = self.reason(
                specs, *aggregates, enabled_filters=(name, 'ComputeFilter')
            )
            self.assertEqual(
                nova_filter.host_passes(state, spec), reason is None, reason
            )
            self.assertIsNone(self.reason(specs, *aggregates))

    def test_aggregate_with_required_traits_takes_no_other_flavor(self):
        metadata = {'trait:CUSTOM_GPU': 'required', 'trait:HW_X': 'forbidden'}
        for specs, isolates, rejected in (
            ({}, True, True),
            ({}, False, False),
            ({'trait:CUSTOM_GPU': 'forbidden'}, True, True),
            ({'trait:CUSTOM_GPU': 'required'}, True, False),
            ({'trait_a:CUSTOM_GPU': 'required'}, True, False),
        ):
            reason = self.reason(specs, metadata, isolates_aggregates=isolates)
            self.assertEqual(rejected, reason is not None, specs)
            if rejected:
                self.assertIn('gpus', reason)
                self.assertIn('trait:CUSTOM_GPU', reason)
