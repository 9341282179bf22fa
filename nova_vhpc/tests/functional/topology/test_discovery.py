# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Discovery on real bridges and uplinks of this machine's kernel."""

from oslotest import base

from nova_vhpc.tests.functional.topology import links
from nova_vhpc.topology import bridge_rules, discovery, model


class DiscoveryTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.links = self.useFixture(links.Links())
        self.shared = self.links.bridge('s')
        self.own = self.links.bridge('o')
        self.up1 = self.links.uplink('u1', self.shared)
        self.up2 = self.links.uplink('u2', self.own)

    def discover(
        self, *texts: str, patterns: bool = True
    ) -> discovery.Findings:
        return discovery.Discovery(
            bridge_rules.parse_rules(texts),
            nic_patterns=[self.links.prefix + 'u*'] if patterns else [],
        ).discover('node')

    def rules(self) -> tuple[str, str]:
        return (
            f'{self.shared}:shared:slots=4:mbps=40000',
            f'{self.own}:separate:physnet=fabric:mbps=25000',
        )

    def test_alternative_name_of_an_uplink_counts(self) -> None:
        name = self.links.name('alt')
        index = self.links.index(self.up1)
        self.links.ipr.link('property_add', index=index, altname=name)
        findings = self.discover(f'{self.own}:nic={name}')
        self.assertEqual((), findings.problems)
        self.assertEqual(
            {self.up1: True, self.up2: True},
            {u.nic: u.up for u in findings.topology.uplinks},
        )

    def test_shared_and_separate_uplinks_are_discovered(self) -> None:
        findings = self.discover(*self.rules())
        self.assertEqual((), findings.problems)
        by_nic = {u.nic: u for u in findings.topology.uplinks}
        self.assertEqual(
            model.Uplink(
                self.up1,
                self.shared,
                model.BridgeKind.SHARED,
                40000,
                slots=4,
            ),
            by_nic[self.up1],
        )
        self.assertEqual(
            model.Uplink(
                self.up2,
                self.own,
                model.BridgeKind.SEPARATE,
                25000,
                slots=1,
                physnets=('fabric',),
            ),
            by_nic[self.up2],
        )

    def test_speed_is_read_from_the_driver(self) -> None:
        findings = self.discover(self.shared)
        # The veth driver reports 10 Gbit/s.
        self.assertEqual(10000, findings.topology.uplinks[0].mbps)

    def test_uplink_without_carrier_is_down(self) -> None:
        self.links.set(self.up1 + 'x', state='down')
        by_nic = {
            u.nic: u for u in self.discover(*self.rules()).topology.uplinks
        }
        self.assertFalse(by_nic[self.up1].up)
        self.assertEqual(0, by_nic[self.up1].mbps)
        self.assertTrue(by_nic[self.up2].up)

    def test_uplink_with_its_nic_off_is_down(self) -> None:
        self.links.set(self.up1, state='down')
        self.assertFalse(self.discover(self.shared).topology.uplinks[0].up)

    def test_uplink_with_its_bridge_off_is_down(self) -> None:
        self.links.set(self.shared, state='down')
        self.assertFalse(self.discover(self.shared).topology.uplinks[0].up)

    def test_virtual_port_is_no_uplink_without_nic_patterns(self) -> None:
        findings = self.discover(self.shared, patterns=False)
        self.assertEqual((), findings.topology.uplinks)
        self.assertIn(self.shared, findings.problems[0])
        self.assertIn('nic_patterns', findings.problems[0])
