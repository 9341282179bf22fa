# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Last value and EWMA."""

from nova_vhpc.control.predictors import base as predictors_base
from nova_vhpc.control.predictors import ewma, last_value
from nova_vhpc.tests import base


class LastValueTest(base.TestCase):
    def test_the_state_stays(self):
        predictor = last_value.LastValuePredictor()
        self.assertEqual(predictors_base.IDLE_STATE, predictor.predict())
        for state in (4, 2, 2):
            predictor.observe(state, 0.0)
            self.assertEqual(state, predictor.predict())


class EwmaTest(base.TestCase):
    def test_averages_events_not_states(self):
        predictor = ewma.EwmaPredictor(0.5)
        predictor.observe(1, 0)
        predictor.observe(3, 140)
        # Mean 70, state 2; the next one halves the distance to 140.
        self.assertEqual(2, predictor.predict())
        predictor.observe(3, 140)
        self.assertEqual(3, predictor.predict())

    def test_the_first_value_is_taken_whole(self):
        predictor = ewma.EwmaPredictor(0.1)
        predictor.observe(5, 220)
        self.assertEqual(5, predictor.predict())

    def test_refuses_a_weight_out_of_range(self):
        for alpha in (0, -1, 1.1):
            self.assertRaises(ValueError, ewma.EwmaPredictor, alpha)
