# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of :mod:`nova_vhpc.agent.uplinks.port_networks`."""

import time

import fixtures
from oslotest import base

from nova_vhpc.agent.uplinks import port_networks
from nova_vhpc.topology import open_vswitch

FLOW = ' in_port={} actions=load:0x{}->OXM_OF_METADATA[],resubmit(,8)\n'


def state(*taps: int, **external_ids: str) -> open_vswitch.OpenVswitch:
    """Return an ovsdb of OVN with these ports."""
    ports = tuple(
        open_vswitch.Port(
            f'tap{number}',
            (
                open_vswitch.Interface(
                    f'tap{number}',
                    ofport=number,
                    external_ids={
                        key.replace('_', '-'): value
                        for key, value in external_ids.items()
                    },
                ),
            ),
        )
        for number in taps
    )
    return open_vswitch.OpenVswitch(
        {'ovn-remote': 'tcp:192.0.2.1:6642'},
        (open_vswitch.Bridge('br-int', ports),),
    )


class PortNetworksTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.state: open_vswitch.OpenVswitch | None = state(1, 2)
        self.flows: str | None = FLOW.format(1, 5)
        self.dumped: list[str] = []
        self.networks = port_networks.PortNetworks(
            lambda: self.state, self.dump
        )
        for name in ('FLOWS_AGE_S', 'UNWIRED_AGE_S'):
            self.useFixture(fixtures.MockPatchObject(port_networks, name, 1e9))

    def dump(self, bridge: str) -> str | None:
        self.dumped.append(bridge)
        return self.flows

    def port(self, number: int) -> open_vswitch.Interface:
        return self.state.interfaces[number - 1]

    def test_flows_are_read_once_until_ovsdb_changes(self) -> None:
        for _ in range(3):
            network = self.networks.of_port(self.port(1))
            self.assertEqual('datapath 5', network.name)
        self.assertEqual(['br-int'], self.dumped)
        self.state = state(1, 2)
        self.networks.of_port(self.port(1))
        self.assertEqual(['br-int'] * 2, self.dumped)

    def test_port_that_is_not_wired_may_soon_be_known(self) -> None:
        self.assertIsNone(self.networks.of_port(self.port(2)))
        self.assertTrue(self.networks.may_change(self.port(2)))

    def test_port_that_is_being_wired_may_get_more_flows(self) -> None:
        self.assertIsNotNone(self.networks.of_port(self.port(1)))
        self.assertTrue(self.networks.may_change(self.port(1)))

    def test_port_that_was_just_wired_may_get_more_flows(self) -> None:
        for age_s, expected in ((1, True), (60, False), (-60, False)):
            wired_ms = int((time.time() - age_s) * 1000)
            self.state = state(1, ovn_installed_ts=str(wired_ms))
            self.assertIsNotNone(self.networks.of_port(self.port(1)))
            self.assertEqual(
                expected, self.networks.may_change(self.port(1)), age_s
            )

    def test_nothing_more_is_known_without_flows(self) -> None:
        self.flows = None
        self.assertIsNone(self.networks.of_port(self.port(1)))
        self.assertFalse(self.networks.may_change(self.port(1)))

    def test_nothing_is_known_before_ovsdb_answers(self) -> None:
        port = self.port(1)
        self.state = None
        self.assertIsNone(self.networks.of_port(port))
        self.assertEqual([], self.dumped)


class FlowReaderTest(base.BaseTestCase):
    def test_program_that_fails_is_said_once(self) -> None:
        reader = port_networks.FlowReader('unix:/nowhere/db.sock')
        with self.assertLogs(port_networks.LOG, 'WARNING') as logs:
            self.assertIsNone(reader.dump('br-int'))
            self.assertIsNone(reader.dump('br-int'))
        self.assertEqual(1, len(logs.output))
        self.assertIn('ovs-ofctl', logs.output[0])
