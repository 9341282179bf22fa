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


import contextlib
import io

from nova_vhpc.cmd import bench
from nova_vhpc.tests import base


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
