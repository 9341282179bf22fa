# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of :mod:`nova_vhpc.agent.health.watch`."""

import json
from typing import Any

import fixtures
from oslotest import base

from nova_vhpc.agent import health
from nova_vhpc.agent.health import watch
from nova_vhpc.tests.unit.agent.health import test_rules


class HealthWatchTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.now_s = 1000.0
        self.watch = watch.HealthWatch(lambda: self.now_s)
        self.log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))

    def judge(self, peers: str, after_s: float = 0.0) -> dict[str, Any]:
        """Judge an agent whose bus is in a state, and log changes."""
        self.now_s += after_s
        judged = self.watch.judge(
            test_rules.document(
                peers={
                    'state': peers,
                    'detail': 'refused' if peers == 'down' else '',
                }
            )
        )
        self.watch.log_changes()
        json.dumps(judged)
        return judged

    def test_problem_has_a_beginning_and_an_action(self) -> None:
        self.assertTrue(self.judge('up')['healthy'])
        judged = self.judge('down')
        self.assertEqual('degraded', judged['state'])
        self.assertFalse(judged['healthy'])
        part = judged['parts']['bus']
        self.assertIn('refused', part['what'])
        self.assertIn('transport_url', part['action'])
        since = part['since']
        again = self.judge('down', 500.0)['parts']['bus']
        self.assertEqual(since, again['since'])
        (sentence,) = health.sentences(judged)
        self.assertIn('bus: degraded since 20', sentence)

    def test_problem_is_logged_once_and_so_is_its_end(self) -> None:
        self.judge('up')
        self.judge('down')
        self.assertEqual('', self.log.output, 'it may be over soon')
        for _ in range(3):
            self.judge('down', watch.LOG_AFTER_S)
        self.assertEqual(1, self.log.output.count('Not healthy: bus'))
        for _ in range(3):
            self.judge('up')
        self.assertEqual(1, self.log.output.count('Healthy again: bus'))

    def test_problem_of_a_moment_is_not_logged(self) -> None:
        self.judge('down')
        self.judge('up', 1.0)
        self.judge('up', 100.0)
        self.assertEqual('', self.log.output)

    def test_part_that_starts_for_long_is_not_healthy(self) -> None:
        self.assertTrue(self.judge('starting')['healthy'])
        judged = self.judge('starting', watch.MAX_STARTING_S + 1)
        self.assertEqual('degraded', judged['parts']['bus']['state'])
        self.assertIn('Not healthy: bus', self.log.output)
        self.assertTrue(self.judge('up')['healthy'])


class SentencesTest(base.BaseTestCase):
    def test_time_beyond_the_calendar_is_said(self) -> None:
        part = {
            **{'state': 'failed', 'healthy': False},
            **{'what': 'off', 'action': 'turn it on'},
        }
        for since in (1e308, float('nan'), float('inf'), 1e15):
            (sentence,) = health.sentences(
                {'parts': {'peers': {**part, 'since': since}}}
            )
            self.assertIn('a time beyond the calendar', sentence)
