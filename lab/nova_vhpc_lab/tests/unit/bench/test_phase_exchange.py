# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


import contextlib
import io

from nova_vhpc.tests import base
from nova_vhpc_lab import cli as bench


class PhaseExchangeBenchTest(base.TestCase):
    def test_unreachable_broker_is_reported_without_its_password(self) -> None:
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            status = bench.main(
                ['peers', '--url', 'rabbit://u:hidden@127.0.0.1:1/']
            )
        self.assertEqual(1, status)
        self.assertIn('peers: the broker of --url: ', err.getvalue())
        self.assertNotIn('hidden', err.getvalue())
