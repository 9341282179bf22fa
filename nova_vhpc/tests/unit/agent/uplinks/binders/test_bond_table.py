# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of :mod:`nova_vhpc.agent.uplinks.binders.bond_table`."""

from unittest import mock

from oslotest import base

from nova_vhpc.agent.ovsdb import vswitchd
from nova_vhpc.agent.uplinks.binders import bond_table
from nova_vhpc.tests.unit.agent.uplinks.binders import bond

MAC = 'fa:16:3e:00:00:01'

FDB = """\
 port  VLAN  MAC                Age
    1     0  3e:f7:34:d9:1f:fa    5
    3   100  fa:16:3e:00:00:01    1
LOCAL   200  fa:16:3e:00:00:01  299
    3   100  fa:16:3e:00:00:02  static
"""

OLD_SHOW = """\
---- bond0 ----
bond_mode: balance-slb
active slave mac: de:52:39:7e:7f:a3(eth1)

slave eth1: enabled
\tactive slave
\tmay_enable: true

slave eth2: disabled
\tmay_enable: false
"""


class BondTableTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.daemon = bond.MemoryVswitchd('bond0', ('eth1', 'eth2'))
        self.table = bond_table.BondTable(self.daemon)

    def answering(self, text: str) -> bond_table.BondTable:
        return bond_table.BondTable(
            mock.Mock(spec=vswitchd.Vswitchd, **{'call.return_value': text})
        )

    def test_disabled_members_do_not_count(self) -> None:
        self.assertEqual({'eth1', 'eth2'}, self.table.enabled('bond0'))
        self.daemon.disabled.add('eth1')
        self.assertEqual({'eth2'}, self.table.enabled('bond0'))
        self.assertEqual({'eth1'}, self.answering(OLD_SHOW).enabled('bond0'))

    def test_learned_addresses_are_those_asked_for(self) -> None:
        learned = self.answering(FDB).learned('br-ex', {MAC})
        self.assertEqual({MAC: (('3', 100), ('LOCAL', 200))}, learned)

    def test_entry_is_asked_for_once_a_run(self) -> None:
        for _ in range(2):
            self.assertEqual(
                bond.entry(MAC, 100, 3), self.table.entry(MAC, 100, 3)
            )
        self.assertEqual(1, len(self.daemon.calls))
        self.daemon.restart()
        self.table.entry(MAC, 100, 3)
        self.assertEqual(2, len(self.daemon.calls))

    def test_answer_that_is_no_number_is_an_error(self) -> None:
        self.assertRaises(
            vswitchd.VswitchdError, self.answering('?').entry, MAC, 0, 0
        )
