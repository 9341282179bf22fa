# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.


"""Tests of running the programs that build a guest."""

import os
from unittest import mock

from nova_vhpc.testbed import errors, toolchain
from nova_vhpc.tests import base


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
