# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Gang windows of two hosts whose clocks differ."""

from oslotest import base

from nova_vhpc_lab.bench.lab import clock_error


class TestClock(base.BaseTestCase):
    def test_clocks_a_window_apart_halve_the_progress(self) -> None:
        wrong = str(clock_error.WINDOW_MS)
        # Something else may need the CPUs during a measurement, or several.
        for _ in range(6):
            messages: list[str] = []
            figures = clock_error.measure(
                1.0, 1, messages.append, errors_ms=(0, clock_error.WINDOW_MS)
            )
            self.assertEqual(3, len(messages))
            by_error = figures['by_error_ms']
            self.assertEqual(['0', wrong], list(by_error))
            if by_error['0'] > 2 * by_error[wrong]:
                break
        else:
            self.fail(figures)
