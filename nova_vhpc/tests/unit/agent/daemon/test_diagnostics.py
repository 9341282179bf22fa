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

"""Remarks of the controller are told once, not ten times a second."""

import fixtures
from oslotest import base

from nova_vhpc.agent.daemon import diagnostics
from nova_vhpc.control import model


class TestRemarks(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))
        self.subject = diagnostics.Remarks(lambda uuid: f'vm-{uuid}')
        self.tick = 0

    def hear(self, *made: tuple[str, str], ticks: int = 1) -> list[str]:
        """What is logged when these are made in each of some ticks."""
        before = len(self.log.output.splitlines())
        for _ in range(ticks):
            self.tick += 1
            self.subject.hear(
                self.tick, [model.Ignored(*remark) for remark in made]
            )
        return self.log.output.splitlines()[before:]

    def test_once_whatever_its_numbers(self) -> None:
        self.assertEqual(
            ['VM vm-a: io_events = -1.5'], self.hear(('a', 'io_events = -1.5'))
        )
        self.assertEqual([], self.hear(('a', 'io_events = -7e9')))
        self.assertEqual(1, len(self.hear(('b', 'io_events = -7e9'))))
        self.assertEqual(1, len(self.hear(('a', 'has 0 vCPUs'))))

    def test_of_the_host(self) -> None:
        self.assertEqual(['no pools'], self.hear(('', 'no pools')))

    def test_not_again_while_it_lasts(self) -> None:
        self.assertEqual(
            1, len(self.hear(('a', 'x'), ticks=3 * diagnostics.AGAIN_TICKS))
        )

    def test_again_after_a_while_without(self) -> None:
        self.hear(('a', 'x'))
        self.assertEqual([], self.hear(ticks=10))
        self.assertEqual([], self.hear(('a', 'x')))
        self.hear(ticks=2 * diagnostics.AGAIN_TICKS)
        self.assertEqual(1, len(self.hear(('a', 'x'))))

    def test_too_many_to_remember(self) -> None:
        many = [(str(number), 'x') for number in range(diagnostics.MOST + 50)]
        said = self.hear(*many, ticks=3)
        self.assertEqual(diagnostics.MOST + 1, len(said))
        self.assertIn('not logged', said[-1])
