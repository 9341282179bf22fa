# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

from hypothesis import given
from hypothesis import strategies as st
from nova import exception

from nova_vhpc.flavor import extra_specs
from nova_vhpc.tests import base


class ParseTest(base.TestCase):
    def test_flavor_without_vhpc_keys_requests_nothing(self):
        specs = {'hw:cpu_policy': 'dedicated', 'quota:cpu_quota': '5000'}
        self.assertFalse(extra_specs.requested(specs))
        self.assertIs(extra_specs.NOTHING, extra_specs.parse(specs))

    def test_every_key_is_read(self):
        parsed = extra_specs.parse(
            {
                'vhpc:workload': 'parallel',
                'vhpc:paradigm': 'hybrid',
                'vhpc:network': 'shared-separate',
                'vhpc:min_link_mbps': '10000',
                'vhpc:spare_cpus': '2',
                'vhpc:uplink_nic': '1',
                'vhpc:max_overcommit': '1.5',
                'vhpc:max_tier': 'switch',
                'vhpc:io_pool': 'never',
                'vhpc:time_slice_us': '5000',
                'vhpc:wait': 'passive',
                'vhpc:cluster': 'weather.1',
            }
        )
        self.assertEqual(
            extra_specs.ExtraSpecs(
                requested=True,
                asks_agent=True,
                workload='parallel',
                paradigm='hybrid',
                network='shared-separate',
                min_link_mbps=10000,
                spare_cpus=2,
                uplink_nic=1,
                max_overcommit=1.5,
                max_tier='switch',
                io_pool='never',
                time_slice_us=5000,
                wait='passive',
                cluster='weather.1',
            ),
            parsed,
        )

    def test_hint_to_guests_alone_does_not_ask_the_agent(self):
        for specs, asks in (
            ({'vhpc:wait': 'passive'}, False),
            ({'vhpc:wait': 'sleep'}, False),
            ({'vhpc:wait': 'passive', 'hw:cpu_policy': 'shared'}, False),
            ({'vhpc:wait': 'passive', 'vhpc:workload': 'general'}, True),
        ):
            parsed = extra_specs.parse(specs)
            self.assertTrue(parsed.requested)
            self.assertEqual(asks, parsed.asks_agent)

    def test_invalid_value_makes_the_server_general_and_is_named(self):
        parsed = extra_specs.parse(
            {'vhpc:workload': 'parallel', 'vhpc:time_slice_us': '999'}
        )
        self.assertEqual('general', parsed.workload)
        self.assertIsNone(parsed.time_slice_us)
        (error,) = parsed.errors
        self.assertIn('vhpc:time_slice_us', error)
        self.assertIn('999', error)
        self.assertIn('>= 1000', error)

    def test_error_names_the_valid_values(self):
        for key, value, words in (
            ('workload', 'mpi', 'one of: parallel, latency, general'),
            ('paradigm', '', 'one of: mpi, openmp, hybrid'),
            ('network', 'dual', 'one of: exported, shared, '),
            ('io_pool', 'Auto', 'one of: auto, always, never'),
            ('wait', 'sleep', 'one of: auto, passive, active'),
            ('spare_cpus', '-1', 'an integer >= 0'),
            ('time_slice_us', '999', 'an integer >= 1000 and <= 1000000'),
            ('time_slice_us', '1000001', 'an integer >= 1000 and <= 1000000'),
            ('max_overcommit', 'two', 'a decimal number > 0, such as 1.5'),
            ('cluster', 'a b', '1 to 255 letters, digits or any of . _ : -'),
            ('cluster', 'a' * 256, '1 to 255 letters, digits'),
            ('cluster', '', '1 to 255 letters, digits'),
        ):
            parsed = extra_specs.parse({f'vhpc:{key}': value})
            (error,) = parsed.errors
            self.assertIn(f"vhpc:{key}: '{value}' is not {words}", error)
            if words.startswith('an integer >= 0'):
                self.assertTrue(error.endswith(words))

    def test_least_and_greatest_values_are_valid(self):
        for text in ('1000', '1000000'):
            parsed = extra_specs.parse({'vhpc:time_slice_us': text})
            self.assertEqual((), parsed.errors)
            self.assertEqual(int(text), parsed.time_slice_us)

    def test_overcommit_limit_of_zero_is_invalid(self):
        for text in ('0', '0.0', '00.000000', '-1', 'nan'):
            parsed = extra_specs.parse({'vhpc:max_overcommit': text})
            self.assertIsNone(parsed.max_overcommit)
            self.assertIn('is not a decimal number > 0', parsed.errors[0])
        parsed = extra_specs.parse({'vhpc:max_overcommit': '0.5'})
        self.assertEqual(0.5, parsed.max_overcommit)

    def test_unknown_key_makes_the_server_general_and_is_named(self):
        parsed = extra_specs.parse(
            {'vhpc:workload': 'parallel', 'vhpc:wrkload': 'x'}
        )
        self.assertEqual('general', parsed.workload)
        self.assertIn('vhpc:wrkload', parsed.errors[0])
        self.assertIn('did you mean vhpc:workload?', parsed.errors[0])

    def test_unknown_key_like_no_other_names_all_keys(self):
        (error,) = extra_specs.parse({'vhpc:xyzzy': 'x'}).errors
        self.assertNotIn('did you mean', error)
        for key in extra_specs.KEYS:
            self.assertIn(key.full_name, error)

    def test_misspelt_value_names_the_value(self):
        (error,) = extra_specs.parse({'vhpc:network': 'seperate'}).errors
        self.assertIn('did you mean separate?', error)

    @given(
        st.dictionaries(
            st.one_of(
                st.sampled_from([k.full_name for k in extra_specs.KEYS]),
                st.text(max_size=30).map(lambda t: 'vhpc:' + t),
                st.text(max_size=30),
            ),
            st.text(max_size=30),
            max_size=8,
        )
    )
    def test_no_extra_specs_raise(self, specs):
        parsed = extra_specs.parse(specs)
        self.assertEqual(extra_specs.requested(specs), parsed.requested)
        if parsed.errors:
            self.assertEqual('general', parsed.workload)


class RegisterTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.validators = {v.name: v for v in extra_specs.register()}

    def test_every_key_is_registered(self):
        self.assertEqual(
            {key.full_name for key in extra_specs.KEYS}, set(self.validators)
        )

    def test_api_and_parser_accept_the_same_values(self):
        values = [
            *('parallel', 'mpi', 'shared', 'auto', '0', '1', '-1', '999'),
            *('0.0', '000.000', '0.5', 'passive', 'active', 'Passive'),
            *('1000', '1.5', '1e3', '', ' ', 'x' * 300, '256', '1000001'),
        ]
        for key in extra_specs.KEYS:
            for value in values:
                try:
                    key.parse(value)
                    parses = True
                except ValueError:
                    parses = False
                try:
                    self.validators[key.full_name].validate(
                        key.full_name, value
                    )
                    validates = True
                except exception.ValidationError as error:
                    validates = False
                    self.assertIn(key.full_name, str(error))
                    self.assertIn(value, str(error))
                self.assertEqual(parses, validates, (key.name, value))
