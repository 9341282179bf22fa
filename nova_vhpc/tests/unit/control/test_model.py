# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What the values of the control core tell of themselves."""

from nova_vhpc.control import model
from nova_vhpc.tests import base


def schedule(**shares_after):
    return model.WindowSchedule(
        (model.Turn(20_000, frozenset(), dict(shares_after)),), shares_after
    )


class TestSharesOfLeavers(base.TestCase):
    def test_all_vms_leave_a_schedule_that_ends(self):
        self.assertEqual(
            {'a': 1, 'b': 2}, schedule(a=1, b=2).shares_of_leavers(None)
        )

    def test_vms_of_the_successor_stay(self):
        self.assertEqual(
            {'a': 1}, schedule(a=1, b=2).shares_of_leavers(schedule(b=3))
        )
