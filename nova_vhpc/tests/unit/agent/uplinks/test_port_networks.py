# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of :mod:`nova_vhpc.agent.uplinks.port_networks`."""

import pathlib
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
        {
            'ovn-remote': 'tcp:192.0.2.1:6642',
            'ovn-bridge-mappings': 'hpc0:br-hpc0',
        },
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

    def dump(self, bridge: open_vswitch.Bridge) -> str:
        self.dumped.append(bridge.name)
        if self.flows is None:
            raise port_networks.FlowsError('ovs-ofctl is missing')
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
        with self.assertLogs(port_networks.LOG, 'WARNING') as logs:
            self.assertIsNone(self.networks.of_port(self.port(1)))
            self.state = state(1, 2)
            self.assertIsNone(self.networks.of_port(self.port(1)))
        self.assertEqual(1, len(logs.output))
        self.assertFalse(self.networks.may_change(self.port(1)))
        self.assertEqual(
            'ovs-ofctl is missing',
            self.networks.unknown_because(self.port(1)),
        )

    def test_reason_for_an_unknown_network_names_the_port(self) -> None:
        self.flows = ' priority=0 actions=drop'
        self.assertIsNone(self.networks.of_port(self.port(1)))
        self.assertIn(
            'ovn-controller', self.networks.unknown_because(self.port(1))
        )
        self.state = open_vswitch.OpenVswitch({}, self.state.bridges)
        self.assertIsNone(self.networks.of_port(self.port(1)))
        reason = self.networks.unknown_because(self.port(1))
        for word in ('tap1', 'agent of Neutron'):
            self.assertIn(word, reason)

    def test_network_of_a_host_without_mappings_is_certain(self) -> None:
        self.state = open_vswitch.OpenVswitch(
            {'ovn-remote': 'tcp:192.0.2.1:6642'}, self.state.bridges
        )
        self.assertIsNotNone(self.networks.of_port(self.port(1)))
        self.assertFalse(self.networks.may_change(self.port(1)))

    def test_nothing_is_known_before_ovsdb_answers(self) -> None:
        port = self.port(1)
        self.state = None
        self.assertIsNone(self.networks.of_port(port))
        self.assertEqual([], self.dumped)


class FlowReaderTest(base.BaseTestCase):
    def test_remedy_fits_what_went_wrong(self) -> None:
        for script, word in (
            ('', 'install ovs-ofctl'),
            ('echo Permission denied >&2; exit 1', 'CAP_DAC_OVERRIDE'),
            ('echo version negotiation failed >&2; exit 1', 'protocols'),
            ('echo no such file >&2; exit 1', 'ovs-vswitchd is running'),
        ):
            with self.subTest(word):
                directory = self.useFixture(fixtures.TempDir()).path
                if script:
                    program = pathlib.Path(directory, 'ovs-ofctl')
                    program.write_text(f'#!/bin/sh\n{script}\n')
                    program.chmod(0o755)
                    self.useFixture(
                        fixtures.MockPatchObject(
                            port_networks, 'PROGRAM', str(program)
                        )
                    )
                else:
                    self.useFixture(
                        fixtures.MockPatchObject(
                            port_networks, 'PROGRAM', '/nowhere/ovs-ofctl'
                        )
                    )
                error = self.assertRaises(
                    port_networks.FlowsError,
                    port_networks.FlowReader('unix:/nowhere/db.sock').dump,
                    open_vswitch.Bridge('br-int'),
                )
                for each in ('br-int', word):
                    self.assertIn(each, str(error))
