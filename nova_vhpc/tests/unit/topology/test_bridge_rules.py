# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Reading and matching the option ``bridges``."""

from oslotest import base

from nova_vhpc.topology import bridge_rules, model

SEPARATE = model.BridgeKind.SEPARATE


class ParseTest(base.BaseTestCase):
    def test_rule_with_all_parts_is_parsed(self) -> None:
        self.assertEqual(
            bridge_rules.BridgeRule('br-a', slots=4, physnet='p1', mbps=25000),
            bridge_rules.parse_rule(
                'br-a:shared:slots=4:physnet=p1:mbps=25000'
            ),
        )
        self.assertEqual(
            bridge_rules.BridgeRule('br-o', SEPARATE, nics=('eth7',)),
            bridge_rules.parse_rule(' br-o : separate : nic=eth7 '),
        )

    def test_name_alone_is_a_shared_bridge(self) -> None:
        self.assertEqual(
            model.BridgeKind.SHARED, bridge_rules.parse_rule('br-a').kind
        )

    def test_invalid_part_is_named(self) -> None:
        for text, what in (
            (':shared', 'the name of the bridge is missing'),
            ('br-a:own', "'own' is no kind of bridge"),
            ('br-a:slots=0', "slots '0'"),
            ('br-a:slots=many', "slots 'many'"),
            ('br-a:mbps=-1', "mbps '-1'"),
            ('br-a:speed=5', "'speed=5' is not understood"),
            ('br-a:physnet=', "'physnet=' is not understood"),
            ('br-a:separate:slots=2', 'one slot'),
            ('br-a:separate:nic=a:nic=b', 'one uplink'),
        ):
            error = self.assertRaises(
                ValueError, bridge_rules.parse_rule, text
            )
            self.assertIn(what, str(error))
            self.assertIn(f"'{text}'", str(error))
            self.assertIn('allowed is NAME', str(error))

    def test_bridge_given_twice_is_refused(self) -> None:
        error = self.assertRaises(
            ValueError, bridge_rules.parse_rules, ['br-a', 'br-a:separate']
        )
        self.assertIn('given twice', str(error))

    def test_first_matching_rule_is_found(self) -> None:
        rules = bridge_rules.parse_rules(['br-hpc0', 'br-hpc*:separate'])
        self.assertEqual(rules[0], bridge_rules.find_rule(rules, 'br-hpc0'))
        self.assertEqual(rules[1], bridge_rules.find_rule(rules, 'br-hpc1'))
        self.assertIsNone(bridge_rules.find_rule(rules, 'br-ex'))
