# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Values to write to a guest, and its failures."""

import dataclasses

from oslotest import base

from nova_vhpc.agent.guests.guest import Guest
from nova_vhpc.agent.libvirt import cputune, domain_xml
from nova_vhpc.agent.probes import sampler
from nova_vhpc.control import model
from nova_vhpc.flavor import extra_specs
from nova_vhpc.linux import qemu_process

BOTH = frozenset({0, 1})


def make(**changes: object) -> Guest:
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
    return Guest(
        info=info,
        domain=None,
        domain_id=1,
        identity=qemu_process.Identity('', 0, 0, 1),
        original=tune,
        expected=tune,
        reader=sampler.VmReader([], []),
        **changes,
    )


class GuestTest(base.BaseTestCase):
    def test_cputune_in_force_is_in_the_controllers_terms(self) -> None:
        guest = make()
        self.assertEqual(
            model.CpuTune(100_000, model.UNLIMITED, 1024, (BOTH, BOTH)),
            guest.in_force,
        )

    def test_guest_without_pins_is_floating_beside_offline_cpus(self) -> None:
        """Without pins libvirt lists online CPUs only (nosmt)."""
        one = frozenset({0})
        guest = make(online=one)
        guest.original = dataclasses.replace(
            guest.original, vcpupins=(one,) * 3
        )
        self.assertTrue(guest.is_floating)
        guest.online = BOTH
        self.assertFalse(guest.is_floating)

    def test_values_in_force_are_not_written(self) -> None:
        guest = make()
        self.assertIsNone(guest.values_to_write(guest.in_force))
        self.assertEqual(
            model.CpuTune(5_000, 5_000),
            guest.values_to_write(model.CpuTune(5_000, 5_000, 1024)),
        )

    def test_pins_of_a_guest_that_must_not_be_pinned_are_not_written(
        self,
    ) -> None:
        planned = model.CpuTune(5_000, 5_000, 7, (frozenset({0}), BOTH))
        self.assertEqual(
            model.CpuTune(5_000, 5_000, 7),
            make(repin=False).values_to_write(planned),
        )

    def test_pins_are_compared_without_offline_cpus(self) -> None:
        """The kernel (cgroup v1) refuses pins to them."""
        guest = make()
        off = frozenset({1})
        guest.note_written(pins=dict.fromkeys(range(2), frozenset({0})))
        planned = model.CpuTune(vcpu_pins=(BOTH, BOTH))
        self.assertEqual(planned, guest.values_to_write(planned))
        self.assertIsNone(guest.values_to_write(planned, off))
        guest.note_written(pins={0: off})
        self.assertEqual(
            model.CpuTune(vcpu_pins=(frozenset({0}),) * 2),
            guest.values_to_write(planned, off),
        )

    def test_quarantine_grows_and_ends_with_success(self) -> None:
        guest = make()
        self.assertFalse(guest.failures.add('x', 2, 100.0))
        self.assertFalse(guest.failures.quarantined)
        self.assertTrue(guest.failures.add('x', 2, 100.0))
        self.assertTrue(guest.failures.quarantined)
        first = guest.failures.quarantined_until
        self.assertTrue(guest.failures.add('x', 2, 100.0))
        self.assertGreater(guest.failures.quarantined_until, first + 50)
        guest.succeeded()
        self.assertFalse(guest.failures.quarantined)
        self.assertEqual(3, guest.failures.count)
