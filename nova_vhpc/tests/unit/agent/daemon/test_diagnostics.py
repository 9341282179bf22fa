# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of :mod:`nova_vhpc.agent.daemon.diagnostics`."""

import fixtures
from oslotest import base

from nova_vhpc.agent.daemon import diagnostics
from nova_vhpc.control import model


class DiagnosticsLogTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))
        self.subject = diagnostics.DiagnosticsLog(lambda uuid: f'vm-{uuid}')
        self.tick = 0

    def report(self, *occurred: tuple[str, str], ticks: int = 1) -> list[str]:
        """Return what is logged if these occur in each of some ticks."""
        before = len(self.log.output.splitlines())
        for _ in range(ticks):
            self.tick += 1
            self.subject.report(
                self.tick, [model.Diagnostic(*one) for one in occurred]
            )
        return self.log.output.splitlines()[before:]

    def test_diagnostics_that_differ_in_numbers_are_logged_once(self) -> None:
        self.assertEqual(
            ['VM vm-a: io_events = -1.5'],
            self.report(('a', 'io_events = -1.5')),
        )
        self.assertEqual([], self.report(('a', 'io_events = -7e9')))
        self.assertEqual(1, len(self.report(('b', 'io_events = -7e9'))))
        self.assertEqual(1, len(self.report(('a', 'has 0 vCPUs'))))

    def test_diagnostic_of_the_host_has_no_server_name(self) -> None:
        self.assertEqual(['no pools'], self.report(('', 'no pools')))

    def test_lasting_diagnostic_is_logged_once(self) -> None:
        self.assertEqual(
            1, len(self.report(('a', 'x'), ticks=3 * diagnostics.REPEAT_TICKS))
        )

    def test_diagnostic_that_returns_is_logged_again(self) -> None:
        self.report(('a', 'x'))
        self.assertEqual([], self.report(ticks=10))
        self.assertEqual([], self.report(('a', 'x')))
        self.report(ticks=2 * diagnostics.REPEAT_TICKS)
        self.assertEqual(1, len(self.report(('a', 'x'))))

    def test_number_of_remembered_diagnostics_is_limited(self) -> None:
        many = [
            (str(number), 'x')
            for number in range(diagnostics.MAX_REMEMBERED + 50)
        ]
        said = self.report(*many, ticks=3)
        self.assertEqual(diagnostics.MAX_REMEMBERED + 1, len(said))
        self.assertIn('not logged', said[-1])
