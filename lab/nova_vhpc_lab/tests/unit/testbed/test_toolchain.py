# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of running the programs that build a guest."""

import os
from unittest import mock

from nova_vhpc.tests import base
from nova_vhpc_lab.testbed import errors, toolchain


class RunToolTest(base.TestCase):
    def test_programs_run_in_the_c_locale(self):
        # In a German locale, apt-cache prints "Hängt ab von" for "Depends".
        with mock.patch.dict(os.environ, {'LC_ALL': 'de_DE.UTF-8'}):
            self.assertEqual('C\n', toolchain.run_tool('printenv', 'LC_ALL'))

    def test_program_that_does_not_end_in_time_raises_image_error(self):
        with mock.patch.object(toolchain, 'TIMEOUT_S', 0.01):
            error = self.assertRaises(
                errors.ImageError, toolchain.run_tool, 'sleep', '60'
            )
        self.assertIn('sleep 60 has not ended', str(error))
