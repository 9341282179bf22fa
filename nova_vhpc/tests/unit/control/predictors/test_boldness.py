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

"""Between hits and transitions."""

from nova_vhpc.control.predictors import boldness
from nova_vhpc.tests import base

# As likely to change as to stay, or nearly: where the two differ.
STAY, CHANGE = 0.5, 0.4


class BoldnessTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.boldness = boldness.Boldness()

    def decide(self, is_new=False):
        return self.boldness.is_change(STAY, CHANGE, is_new)

    def periods(self, number, **came):
        for _ in range(number):
            said = self.decide()
            self.boldness.learn(**came)
        return said

    def test_even_at_first(self):
        self.assertFalse(self.decide())

    def test_bold_about_a_state_never_met_before(self):
        self.assertTrue(self.decide(is_new=True))

    def test_what_is_clear_needs_no_boldness(self):
        self.assertTrue(self.boldness.is_change(0.2, 0.8, False))
        self.assertFalse(self.boldness.is_change(0.8, 0.2, True))

    def test_bold_where_transitions_are_frequent(self):
        for _ in range(20):
            self.boldness.is_change(0.9, 0.1, False)
            self.boldness.learn(stayed=False, expected=False)
        self.assertTrue(self.decide())

    def test_even_where_they_are_rare(self):
        self.periods(30, stayed=True, expected=False)
        self.assertFalse(self.decide())

    def test_bold_once_it_would_have_paid(self):
        for _ in range(10):
            self.periods(1, stayed=False, expected=True)
            # Many clear periods between: the share alone says even.
            for _ in range(20):
                self.boldness.is_change(0.9, 0.1, False)
                self.boldness.learn(stayed=True, expected=False)
        self.assertTrue(self.decide())

    def test_even_again_once_it_has_cost_too_much(self):
        self.periods(40, stayed=False, expected=False)
        self.assertTrue(self.decide())
        self.periods(20, stayed=True, expected=False)
        self.assertFalse(self.decide())

    def test_even_where_changes_cost_more_than_they_win(self):
        # Bold, because transitions are frequent, and always wrong: also
        # with changes that the even threshold would predict too.
        for _ in range(40):
            self.boldness.is_change(0.9, 0.1, False)
            self.boldness.learn(stayed=False, expected=False)
        self.assertTrue(self.decide())
        for _ in range(6):
            self.boldness.is_change(0.1, 0.9, False)
            self.boldness.learn(stayed=True, expected=False)
        self.assertFalse(self.decide())
        # Once they win again, so they may.
        for _ in range(6):
            self.boldness.is_change(0.1, 0.9, False)
            self.boldness.learn(stayed=False, expected=True)
        self.assertTrue(self.decide())

    def test_a_lead_pays_for_more_boldness(self):
        for _ in range(10):
            self.boldness.is_change(0.85, 0.5, False)
            self.boldness.learn(stayed=False, expected=True)
        self.assertFalse(self.boldness.is_change(0.85, 0.5, False))
        for _ in range(12):
            self.boldness.is_change(0.1, 0.9, False)
            self.boldness.learn(stayed=False, expected=True)
        self.assertTrue(self.boldness.is_change(0.85, 0.5, False))
