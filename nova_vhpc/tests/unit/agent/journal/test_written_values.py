# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Values that the agent may have written, and external ones."""

import dataclasses
import json

from oslotest import base

from nova_vhpc.agent.journal import written_values
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.control import model

ZERO, ONE, BOTH = frozenset({0}), frozenset({1}), frozenset({0, 1})
ORIGINAL = cputune.Cputune(
    {
        cputune.PERIOD: 100_000,
        cputune.QUOTA: 18_446_744_073_709_551,
        cputune.SHARES: 1024,
        'emulator_period': 100_000,
    },
    (BOTH, BOTH),
    BOTH,
    2,
)
TUNE = model.CpuTune(8_000, 4_000, 20, (ZERO, ONE))


def changed(**values: int) -> cputune.Cputune:
    return dataclasses.replace(
        ORIGINAL, parameters={**ORIGINAL.parameters, **values}
    )


class WrittenValuesTest(base.BaseTestCase):
    def test_all_values_are_recorded_and_kept(self) -> None:
        first = written_values.with_tune({}, TUNE)
        self.assertEqual(
            {
                cputune.PERIOD: {8_000},
                cputune.QUOTA: {4_000},
                cputune.SHARES: {20},
                'vcpupin 0': {ZERO},
                'vcpupin 1': {ONE},
            },
            first,
        )
        second = written_values.with_tune(first, model.CpuTune(shares=2048))
        self.assertEqual({20, 2048}, second[cputune.SHARES])
        self.assertEqual({8_000}, second[cputune.PERIOD])

    def test_known_values_return_the_same_object(self) -> None:
        first = written_values.with_tune({}, TUNE)
        self.assertIs(first, written_values.with_tune(first, TUNE))
        self.assertIs(
            first, written_values.with_tune(first, model.CpuTune(shares=20))
        )

    def test_too_many_values_mean_any_value(self) -> None:
        known: written_values.WrittenValues = {}
        for shares in range(2, written_values.MOST_VALUES + 2):
            known = written_values.with_tune(
                known, model.CpuTune(shares=shares)
            )
        self.assertEqual(
            written_values.MOST_VALUES, len(known[cputune.SHARES] or ())
        )
        known = written_values.with_tune(known, model.CpuTune(shares=1000))
        self.assertEqual({cputune.SHARES: None}, known)
        self.assertIs(
            known, written_values.with_tune(known, model.CpuTune(shares=7))
        )
        self.assertEqual(
            frozenset(),
            written_values.external(known, ORIGINAL, changed(cpu_shares=333)),
        )

    def test_value_that_was_never_written_is_external(self) -> None:
        known = written_values.with_tune({}, model.CpuTune(shares=20))
        self.assertEqual(
            {cputune.QUOTA, 'vcpupin 1'},
            written_values.external(
                known,
                ORIGINAL,
                dataclasses.replace(
                    changed(vcpu_quota=50_000, cpu_shares=20),
                    vcpupins=(BOTH, ONE),
                ),
            ),
        )

    def test_value_other_than_the_written_ones_is_external(self) -> None:
        known = written_values.with_tune({}, TUNE)
        now = dataclasses.replace(
            changed(vcpu_period=8_000, vcpu_quota=4_001, cpu_shares=20),
            vcpupins=(ZERO, ZERO),
        )
        self.assertEqual(
            {cputune.QUOTA, 'vcpupin 1'},
            written_values.external(known, ORIGINAL, now),
        )

    def test_no_limit_is_known_in_any_number(self) -> None:
        known = written_values.with_tune(
            {}, model.CpuTune(8_000, model.UNLIMITED)
        )
        limited = changed(vcpu_quota=50_000)
        for quota in (-1, 17_592_186_044_415, 18_446_744_073_709_551):
            self.assertEqual(
                frozenset(),
                written_values.external(
                    known, limited, changed(vcpu_quota=quota)
                ),
            )
        self.assertEqual(
            frozenset(),
            written_values.external({}, ORIGINAL, changed(vcpu_quota=-1)),
        )

    def test_original_value_is_neither_external_nor_left(self) -> None:
        self.assertEqual(
            frozenset(), written_values.external({}, ORIGINAL, ORIGINAL)
        )
        known = written_values.with_tune({}, TUNE)
        self.assertEqual(
            frozenset(),
            written_values.left_by_agent(known, ORIGINAL, ORIGINAL),
        )

    def test_written_value_in_force_is_left_by_the_agent(self) -> None:
        known = written_values.with_tune({}, TUNE)
        now = dataclasses.replace(
            changed(vcpu_period=8_000, cpu_shares=21), vcpupins=(ZERO, ZERO)
        )
        self.assertEqual(
            {cputune.PERIOD, 'vcpupin 0'},
            written_values.left_by_agent(known, ORIGINAL, now),
        )

    def test_value_of_a_new_vcpu_is_neither_external_nor_left(self) -> None:
        grown = dataclasses.replace(
            ORIGINAL, vcpupins=(*ORIGINAL.vcpupins, ONE)
        )
        self.assertEqual(
            frozenset(), written_values.external({}, ORIGINAL, grown)
        )
        self.assertEqual(
            frozenset(), written_values.left_by_agent({}, ORIGINAL, grown)
        )

    def test_written_values_are_kept_by_json(self) -> None:
        for known in ({}, {cputune.SHARES: None}, {**TWO_RUNS}):
            text = json.dumps(written_values.to_dict(known))
            self.assertEqual(known, written_values.from_dict(json.loads(text)))

    def test_invalid_json_is_refused(self) -> None:
        for data in (
            *(None, 7, 'x', {'cpu_shares': 7}, {'cpu_shares': ['x']}),
            # Of two kinds, they could not be written again.
            {'cpu_shares': [7, [1]]},
            {'vcpupin 0': [[1], 7]},
            {'cpu_shares': [10**400]},
            {'vcpupin 0': [[10**9]]},
            {'vcpupin 0': [[-1]]},
            {'vcpupin 0': [[]]},
        ):
            self.assertRaises(
                (AttributeError, TypeError, ValueError),
                written_values.from_dict,
                data,
            )


TWO_RUNS = written_values.with_tune(
    written_values.with_tune({}, TUNE),
    model.CpuTune(shares=2048, vcpu_pins=(ONE, ONE)),
)
