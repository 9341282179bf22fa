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

"""What is ours to write, and the quarantine."""

import dataclasses

from oslotest import base

from nova_vhpc.agent.guests import guest
from nova_vhpc.agent.libvirt import cputune, domain_xml
from nova_vhpc.agent.probes import sampler
from nova_vhpc.control import model
from nova_vhpc.flavor import extra_specs
from nova_vhpc.linux import qemu_process

BOTH = frozenset({0, 1})


def make(**changes: object) -> guest.Guest:
    info = domain_xml.DomainInfo(
        'u', 'vm', 2, True, {}, extra_specs.NOTHING, True
    )
    tune = cputune.Cputune(
        {
            cputune.PERIOD: 100_000,
            cputune.QUOTA: 17_592_186_044_415,
            cputune.SHARES: 1024,
        },
        (BOTH, BOTH, BOTH),
        BOTH,
        2,
    )
    return guest.Guest(
        info=info,
        domain=None,
        domain_id=1,
        identity=qemu_process.Identity('', 0, 0, 1),
        original=tune,
        expected=tune,
        reader=sampler.VmReader([], []),
        **changes,
    )


class TestGuest(base.BaseTestCase):
    def test_in_force_in_the_controllers_terms(self) -> None:
        target = make()
        self.assertEqual(
            model.CpuTune(100_000, model.UNLIMITED, 1024, (BOTH, BOTH)),
            target.in_force,
        )

    def test_floats_beside_cpus_that_are_off(self) -> None:
        """Without pins libvirt tells the others only, as with nosmt."""
        one = frozenset({0})
        target = make(online=one)
        target.original = dataclasses.replace(
            target.original, vcpupins=(one,) * 3
        )
        self.assertTrue(target.is_floating)
        target.online = BOTH
        self.assertFalse(target.is_floating)

    def test_what_is_so_already_is_left_out(self) -> None:
        target = make()
        self.assertIsNone(target.values_to_write(target.in_force))
        self.assertEqual(
            model.CpuTune(5_000, 5_000),
            target.values_to_write(model.CpuTune(5_000, 5_000, 1024)),
        )

    def test_pins_of_a_guest_with_its_own_are_left_out(
        self,
    ) -> None:
        wish = model.CpuTune(5_000, 5_000, 7, (frozenset({0}), BOTH))
        self.assertEqual(
            model.CpuTune(5_000, 5_000, 7),
            make(repin=False).values_to_write(wish),
        )

    def test_pins_to_cpus_that_are_off(self) -> None:
        """Kernels refuse them; without them it is as it was before us."""
        target = make()
        off = frozenset({1})
        target.note_written(pins=dict.fromkeys(range(2), frozenset({0})))
        wish = model.CpuTune(vcpu_pins=(BOTH, BOTH))
        self.assertEqual(wish, target.values_to_write(wish))
        self.assertIsNone(target.values_to_write(wish, off))
        target.note_written(pins={0: off})
        self.assertEqual(
            model.CpuTune(vcpu_pins=(frozenset({0}),) * 2),
            target.values_to_write(wish, off),
        )

    def test_quarantine_grows_and_ends_with_success(self) -> None:
        target = make()
        self.assertFalse(target.failures.add('x', 2, 100.0))
        self.assertFalse(target.failures.quarantined)
        self.assertTrue(target.failures.add('x', 2, 100.0))
        self.assertTrue(target.failures.quarantined)
        first = target.failures.quarantined_until
        self.assertTrue(target.failures.add('x', 2, 100.0))
        self.assertGreater(target.failures.quarantined_until, first + 50)
        target.succeeded()
        self.assertFalse(target.failures.quarantined)
        self.assertEqual(3, target.failures.count)
