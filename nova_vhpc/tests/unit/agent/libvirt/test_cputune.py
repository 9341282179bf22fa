# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Order of bandwidth writes; comparison and records of cputunes."""

import json
from typing import Any

import hypothesis
from hypothesis import strategies
from oslotest import base

from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.tests.unit.agent import fake_libvirt

BOTH = frozenset({0, 1})


class Cgroup:
    """cgroup v1 as libvirt writes it: one value at a time, ratio checked.

    libvirt's test driver has no live scheduler parameters, and a real guest
    (functional tests) does not show the steps between two writes.
    """

    def __init__(self, period: int, quota: int, limit: float) -> None:
        self.values = {
            cputune.PERIOD: period,
            cputune.QUOTA: quota,
            cputune.SHARES: 1024,
        }
        self.pins = [(True, True), (True, True)]
        self.online = (True, True)
        self.limit = limit

    def name(self) -> str:
        return 'vm'

    def connect(self) -> 'Cgroup':
        return self

    def getCPUMap(self) -> tuple[int, tuple[bool, ...], int]:
        return len(self.online), self.online, sum(self.online)

    def ratio(self) -> float:
        quota = self.values.get(cputune.QUOTA, -1)
        return 0.0 if quota < 0 else quota / self.values[cputune.PERIOD]

    def setSchedulerParametersFlags(
        self, values: dict[str, int], flags: int
    ) -> None:
        for name, value in values.items():
            if name == cputune.QUOTA and value == 0:
                continue
            before = self.values[name]
            self.values[name] = value
            if self.ratio() > self.limit + 1e-9:
                self.values[name] = before
                raise fake_libvirt.refused('refused: code 38')

    def schedulerParametersFlags(self, flags: int) -> dict[str, int]:
        return dict(self.values)

    def vcpuPinInfo(self, flags: int) -> Any:
        return list(self.pins)

    def XMLDesc(self, flags: int) -> str:
        pins = fake_libvirt.vcpupins(self.pins, self.online)
        return f'<domain><vcpu>2</vcpu>{pins}</domain>'

    def emulatorPinInfo(self, flags: int) -> Any:
        return (True, True)

    def pinVcpuFlags(self, vcpu: int, pin: Any, flags: int) -> None:
        self.pins[vcpu] = pin


class CgroupV2(Cgroup):
    """cgroup v2, where "unlimited" reads as a large number."""

    def schedulerParametersFlags(self, flags: int) -> dict[str, int]:
        values = super().schedulerParametersFlags(flags)
        if values[cputune.QUOTA] < 0:
            values[cputune.QUOTA] = 18_446_744_073_709_551
        return values


bandwidths = strategies.tuples(
    strategies.integers(1_000, 1_000_000),
    strategies.one_of(strategies.just(-1), strategies.integers(1_000, 10**6)),
)


class TestCputune(base.BaseTestCase):
    @hypothesis.given(bandwidths, bandwidths)
    def test_ratio_between_writes_is_at_most_the_larger_end(
        self, old: tuple[int, int], new: tuple[int, int]
    ) -> None:
        limit = max(
            0.0 if quota < 0 else quota / period
            for period, quota in (old, new)
        )
        group = Cgroup(*old, limit=limit or 1e9)
        cputune.write_bandwidth(group, *new, group.values)
        self.assertEqual(new[0], group.values[cputune.PERIOD])
        self.assertEqual(new[1], group.values[cputune.QUOTA])

    def test_limited_and_unlimited_quotas_differ(self) -> None:
        for one, other in ((-1, 5_000), (5_000, -1), (5_000, 6_000)):
            self.assertFalse(cputune.same(cputune.QUOTA, one, other))

    def test_invalid_records_are_refused(self) -> None:
        valid = cputune.read(Cgroup(100_000, -1, 1e9)).to_dict()
        for change in (
            {'parameters': {cputune.PERIOD: 100_000}},
            {'vcpupins': [[0], []]},
            {'vcpupins': [[0], [7]]},
            {'vcpupins': [[0], [0, 2]]},
            {'vcpupins': [[0], [-1]]},
            {'vcpupins': [[0]] * 100_000},
            {'emulatorpin': [7]},
            {'emulatorpin': [-1]},
            {'host_cpus': 10**12},
            {'parameters': {cputune.SHARES: 10**400}},
            {'parameters': {cputune.SHARES: -(10**400)}},
        ):
            self.assertRaises(
                ValueError, cputune.Cputune.from_dict, {**valid, **change}
            )

    def test_cputune_is_read_unchanged_from_its_json(self) -> None:
        tune = cputune.read(Cgroup(100_000, -1, 1e9))
        text = json.dumps(tune.to_dict())
        self.assertEqual(tune, cputune.Cputune.from_dict(json.loads(text)))
