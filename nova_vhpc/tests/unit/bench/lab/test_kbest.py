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


"""When enough has been measured."""

from nova_vhpc.bench.lab import kbest
from nova_vhpc.tests import base

SCHEME = kbest.KBest(k=2, epsilon=0.02, m=4)


class TestKBest(base.TestCase):
    """NPC'09, section 3."""

    def test_k_values_that_agree(self):
        self.assertTrue(SCHEME.converged([50.0, 99.0, 100.0]))

    def test_the_best_ones_must_agree(self):
        self.assertFalse(SCHEME.converged([50.0, 50.1, 100.0]))

    def test_fewer_than_k(self):
        self.assertFalse(SCHEME.converged([100.0]))

    def test_gives_up_after_m(self):
        self.assertFalse(SCHEME.done([1.0, 2.0, 4.0]))
        self.assertTrue(SCHEME.done([1.0, 2.0, 4.0, 8.0]))

    def test_reports_the_best(self):
        self.assertEqual(99.5, SCHEME.best([10.0, 99.0, 100.0]))
        self.assertRaises(ValueError, SCHEME.best, [])
