# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What programs need on hosts without guests."""

from nova_vhpc.tests import base
from nova_vhpc_lab.bench.network import layout, native


class AnswersTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.planned = layout.plan(layout.Cluster(2, 4), layout.NATIVE)
        self.answers = native.answers(self.planned)

    def test_hostfiles_have_each_host_once_with_all_ranks(self):
        files = self.answers[0]['hostfile']
        self.assertEqual('10.97.0.1:4\n10.97.0.5:4\n', files['mpich'])
        self.assertEqual(
            '10.97.0.1 slots=4\n10.97.0.5 slots=4\n', files['openmpi']
        )

    def test_messages_leave_by_the_nic_that_has_their_source(self):
        script = self.answers[1]['routes_script']
        for number, nic in enumerate(self.planned.guests[1].nics):
            table = 100 + number
            self.assertIn(
                f'ip route add 10.0.0.0/8 dev eth{number} table {table}\n',
                script,
            )
            self.assertIn(
                f'ip rule add from {nic.address} lookup {table}\n', script
            )
