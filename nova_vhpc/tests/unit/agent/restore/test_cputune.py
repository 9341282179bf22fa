# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Exact restores, and what happens if one is not possible."""

from typing import Any
from unittest import mock

import hypothesis
import libvirt
from oslotest import base

from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.agent.restore import cputune as cputune_restore
from nova_vhpc.tests.unit.agent import fake_libvirt
from nova_vhpc.tests.unit.agent.libvirt import test_cputune


class CpusetV1(test_cputune.Cgroup):
    """A domain in cgroup v1, which refuses pins to CPUs that are off.

    :ivar cpuset: CPUs that the domain's group has.
    """

    cpuset = frozenset(range(4))

    def XMLDesc(self, flags: int) -> str:
        pins = fake_libvirt.vcpupins(self.pins, ())
        return f'<domain><vcpu>2</vcpu>{pins}</domain>'

    def pinVcpuFlags(self, vcpu: int, pin: Any, flags: int) -> None:
        if any(
            on and not online
            for on, online in zip(pin, self.online, strict=True)
        ):
            raise fake_libvirt.refused('cpuset.cpus: Invalid argument')
        if not cputune.pin_cpus(pin) <= self.cpuset:
            raise fake_libvirt.refused('cpuset.cpus: Permission denied')
        super().pinVcpuFlags(vcpu, pin, flags)


class OfflineCpusTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.domain = CpusetV1(100_000, -1, 1e9)
        self.domain.online = (True, True, False, False)

    def restore(self, *pins: set[int]) -> tuple[str, ...]:
        original = cputune.Cputune(
            dict(self.domain.values),
            tuple(frozenset(pin) for pin in pins),
            test_cputune.BOTH,
            4,
        )
        self.domain.pins = [(True, False, False, False)] * 2
        return cputune_restore.restore(
            self.domain, original, cpuset=lambda: self.domain.cpuset
        )

    def test_pins_are_restored_without_cpus_that_are_off(self) -> None:
        """The kernel took them away; agent pins would be worse."""
        with self.assertLogs(cputune_restore.LOG, 'WARNING') as logs:
            self.assertEqual((), self.restore({0, 1, 2, 3}, {1, 2}))
        self.assertEqual(
            [{0, 1}, {1}],
            [set(cputune.pin_cpus(pin)) for pin in self.domain.pins],
        )
        self.assertEqual(2, len(logs.output))

    def test_pins_are_restored_without_cpus_the_group_lacks(self) -> None:
        """The kernel does not give CPUs back to existing groups."""
        self.domain.online = (True,) * 4
        self.domain.cpuset = frozenset({0, 3})
        with self.assertLogs(cputune_restore.LOG, 'WARNING'):
            self.assertEqual((), self.restore({0, 1, 2, 3}, {2, 3}))
        self.assertEqual(
            [{0, 3}, {3}],
            [set(cputune.pin_cpus(pin)) for pin in self.domain.pins],
        )
        # One CPU is on again, another one is still off.
        self.domain.online = (True, True, True, False)
        with self.assertLogs(cputune_restore.LOG, 'WARNING'):
            self.assertEqual((), self.restore({0, 1, 3}, {0}))
        self.assertEqual({0}, set(cputune.pin_cpus(self.domain.pins[0])))
        self.assertRaises(libvirt.libvirtError, self.restore, {1}, {2})

    def test_restore_raises_without_any_possible_cpu(self) -> None:
        self.assertRaises(libvirt.libvirtError, self.restore, {2}, {3})
        self.domain.online = (True,) * 4
        refused = fake_libvirt.refused('busy')
        with mock.patch.object(
            test_cputune.Cgroup, 'pinVcpuFlags', side_effect=refused
        ) as pinned:
            self.assertRaises(libvirt.libvirtError, self.restore, {1}, {1})
        self.assertEqual(2, pinned.call_count)

    def test_restore_ends_after_a_call_that_timed_out(self) -> None:
        late = fake_libvirt.error(libvirt.VIR_ERR_OPERATION_TIMEOUT)
        with mock.patch.object(
            self.domain, 'pinVcpuFlags', side_effect=late
        ) as pinned:
            self.assertRaises(libvirt.libvirtError, self.restore, {1, 2}, {1})
        pinned.assert_called_once()


class RestoreTest(base.BaseTestCase):
    @hypothesis.given(test_cputune.bandwidths, test_cputune.bandwidths)
    def test_restore_is_exact(
        self, old: tuple[int, int], new: tuple[int, int]
    ) -> None:
        group = test_cputune.Cgroup(*old, limit=1e9)
        before = cputune.read(group)
        cputune.write_bandwidth(group, *new, group.values)
        cputune.write_shares(group, 5)
        cputune.write_pin(group, 1, frozenset({0}), 2)
        self.assertEqual((), cputune_restore.restore(group, before))
        self.assertEqual(before, cputune.read(group))

    def test_unlimited_zero_is_written_as_minus_one(self) -> None:
        group = test_cputune.Cgroup(100_000, 5_000, 1e9)
        original = cputune.Cputune(
            {cputune.PERIOD: 100_000, cputune.QUOTA: 0},
            (test_cputune.BOTH, test_cputune.BOTH),
            test_cputune.BOTH,
            2,
        )
        left = cputune_restore.restore(group, original)
        self.assertEqual(-1, group.values[cputune.QUOTA])
        self.assertEqual((), left)

    def test_no_limit_is_the_same_in_any_number(self) -> None:
        """The guest came from a host with the other cgroup version."""
        for was, group in (
            (17_592_186_044_415, test_cputune.Cgroup(100_000, 5_000, 1e9)),
            (-1, test_cputune.CgroupV2(100_000, 5_000, 1e9)),
        ):
            original = cputune.Cputune(
                {cputune.PERIOD: 100_000, cputune.QUOTA: was},
                (test_cputune.BOTH, test_cputune.BOTH),
                test_cputune.BOTH,
                2,
            )
            self.assertEqual(
                1, len(cputune.differences(original, cputune.read(group)))
            )
            self.assertEqual((), cputune_restore.restore(group, original))
            with mock.patch.object(
                group, 'setSchedulerParametersFlags'
            ) as write:
                self.assertEqual((), cputune_restore.restore(group, original))
            write.assert_not_called()

    def test_pins_are_restored_without_bandwidth_control(self) -> None:
        """The kernel may lack it."""
        group = test_cputune.Cgroup(100_000, -1, 1e9)
        original = cputune.Cputune(
            {}, ((test_cputune.BOTH),) * 2, test_cputune.BOTH, 2
        )
        group.pins = [(True, False), (True, True)]
        self.assertEqual((), cputune_restore.restore(group, original))
        self.assertEqual([(True, True)] * 2, group.pins)

    def test_period_is_restored_if_there_is_no_quota(self) -> None:
        group = test_cputune.Cgroup(100_000, -1, 1e9)
        del group.values[cputune.QUOTA]
        before = cputune.read(group)
        group.values[cputune.PERIOD] = 5_000
        self.assertEqual((), cputune_restore.restore(group, before))
        self.assertEqual(before, cputune.read(group))

    def test_one_of_period_and_quota_is_restored_alone(self) -> None:
        for name in (cputune.PERIOD, cputune.QUOTA):
            group = test_cputune.Cgroup(100_000, 50_000, 1e9)
            before = cputune.read(group)
            group.values |= {cputune.PERIOD: 20_000, cputune.QUOTA: 10_000}
            external = group.values[name]
            left = cputune_restore.restore(group, before, frozenset({name}))
            self.assertEqual((), left)
            self.assertEqual(
                {**before.parameters, name: external}, group.values
            )

    def test_unmanaged_fields_are_not_restored(self) -> None:
        group = test_cputune.Cgroup(100_000, -1, 1e9)
        before = cputune.read(group)
        group.values[cputune.SHARES] = 7
        group.values[cputune.PERIOD] = 5_000
        left = cputune_restore.restore(
            group, before, frozenset({cputune.SHARES})
        )
        self.assertEqual((), left)
        self.assertEqual(7, group.values[cputune.SHARES])
        self.assertEqual(100_000, group.values[cputune.PERIOD])

    def test_refused_call_does_not_stop_the_others(self) -> None:
        for name in ('setSchedulerParametersFlags', 'pinVcpuFlags'):
            group = test_cputune.Cgroup(100_000, -1, 1e9)
            before = cputune.read(group)
            cputune.write_bandwidth(group, 8_000, 8_000, group.values)
            group.pins = [(True, False), (True, False)]
            real = getattr(group, name)
            calls: list[Any] = []

            def once(
                *arguments: Any, real: Any = real, calls: list[Any] = calls
            ) -> None:
                calls.append(arguments)
                if len(calls) == 1:
                    raise fake_libvirt.refused('refused')
                real(*arguments)

            with mock.patch.object(group, name, side_effect=once):
                self.assertRaises(
                    libvirt.libvirtError,
                    cputune_restore.restore,
                    group,
                    before,
                )
            left = cputune.differences(before, cputune.read(group))
            self.assertLessEqual(len(left), 2, left)
            self.assertNotIn('vcpupin 1', ' '.join(left))

    def test_restore_writes_nothing_after_a_timeout(self) -> None:
        group = test_cputune.Cgroup(100_000, -1, 1e9)
        before = cputune.read(group)
        group.values[cputune.SHARES] = 2
        group.pins = [(True, False), (True, False)]
        late = fake_libvirt.refused('busy')
        late.err = (libvirt.VIR_ERR_OPERATION_TIMEOUT, *[0] * 8)
        with (
            mock.patch.object(
                group, 'setSchedulerParametersFlags', side_effect=late
            ),
            mock.patch.object(group, 'pinVcpuFlags') as pin,
        ):
            self.assertRaises(
                libvirt.libvirtError, cputune_restore.restore, group, before
            )
        pin.assert_not_called()
