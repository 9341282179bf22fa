# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

from nova_vhpc.control.gang import policy
from nova_vhpc.tests.unit.control.gang.policy_case import (
    CONFIG,
    GangTestCase,
    hog,
    received,
    vm,
)
from nova_vhpc_lab.bench import gang_ablations


class AblationTest(GangTestCase):
    def windows(self, make_policy):
        """Return the windows on two hosts: beside sleepers, and in debt."""
        return (
            self.decide(
                vm('a'),
                vm('b'),
                others=(hog('w', part=0.2),),
                policy=make_policy(CONFIG),
            ).windows,
            self.decide(
                received(vm('a'), 0.67),
                received(vm('b'), 0.66),
                others=(received(hog('h'), 0.64),),
                policy=make_policy(CONFIG),
                fair=False,
            ).windows,
        )

    def test_each_part_that_is_taken_out_was_there(self):
        whole = self.windows(policy.GangPolicy)
        self.assertNotIn(None, whole)
        # What it costs if windows are harmful shows only over minutes.
        for part in gang_ablations.ABLATIONS.keys() - {'harm-limit', 'sides'}:
            with self.subTest(part):
                windows = self.windows(gang_ablations.ABLATIONS[part])
                self.assertNotEqual(whole, windows)
