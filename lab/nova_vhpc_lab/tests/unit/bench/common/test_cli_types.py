# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import contextlib
import io

from nova_vhpc.tests import base
from nova_vhpc_lab import cli as bench


class CliTypesTest(base.TestCase):
    def test_invalid_argument_is_refused_with_status_2(self):
        for words, message in (
            ('scheduler --hosts 0', "--hosts: '0' is not a whole number"),
            ('scheduler --members x', "--members: 'x' is not a whole number"),
            ('scheduler --rounds 0', 'from 1'),
            ('agent --vms 0', '--vms'),
            ('agent --vcpus -1', '--vcpus'),
            ('agent --guests -1', "'-1' is not a whole number from 0"),
            ('agent --seconds 0', "'0' is not a number of seconds from 1"),
            ('agent --seconds inf', '--seconds'),
            ('agent --soak nan', '--soak'),
            ('controller --vms 3 0', "--vms: '0' is not a whole number"),
            ('controller --ticks 1', 'from 2'),
            ('predictors --traces x --rounds 0', '--rounds'),
            ('peers --agents 0', '--agents'),
            ('peers --cluster-hosts 0', '--cluster-hosts'),
            ('peers --lease x', "'x' is not a number of seconds"),
            ('peers --url x', "'x' is not rabbit://"),
            ('peers --url amqp://h/', 'is not rabbit://'),
            ('peers --url rabbit://u:p@h:port/', 'is not rabbit://'),
        ):
            err = io.StringIO()
            with contextlib.redirect_stderr(err):
                error = self.assertRaises(
                    SystemExit, bench.main, words.split()
                )
            self.assertEqual(2, error.code, words)
            self.assertIn(message, err.getvalue())
