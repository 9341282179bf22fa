# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The answers to control calls that restore or resume servers."""

from oslotest import base

from nova_vhpc.agent.lifecycle import restore_queue, restore_report


def done(outcome: str) -> restore_queue.RestoreAttempt:
    attempt = restore_queue.RestoreAttempt()
    attempt.set_result(outcome)
    return attempt


class RestoreReportTest(base.BaseTestCase):
    def test_each_server_is_listed_by_its_outcome(self) -> None:
        attempts = {
            'b': done(restore_queue.DONE),
            'a': done(restore_queue.DONE),
            'c': done('busy'),
            'd': done(restore_queue.GONE),
        }
        self.assertEqual(
            {
                'restored': ['a', 'b'],
                'failed': {'c': 'busy'},
                'unknown': ['d'],
            },
            restore_report.restored(attempts, 60.0),
        )

    def test_an_attempt_beyond_the_wait_is_reported_as_failed(
        self,
    ) -> None:
        report = restore_report.restored(
            {
                'a': restore_queue.RestoreAttempt(),
                'b': done(restore_queue.DONE),
            },
            0.01,
        )
        self.assertEqual(['b'], report['restored'])
        self.assertIn('0.01 s', report['failed']['a'])

    def test_a_server_that_is_not_managed_is_refused_or_unknown(self) -> None:
        self.assertEqual(['x'], restore_report.refused('x', None)['unknown'])
        self.assertEqual(
            {'x': 'left alone: no journal'},
            restore_report.refused('x', 'no journal')['failed'],
        )

    def test_a_server_is_resumed_or_not_or_unknown(self) -> None:
        for reason, key, outcome in (
            ('', 'resumed', ['x']),
            ('busy', 'failed', {'x': 'busy'}),
            (None, 'unknown', ['x']),
        ):
            answer = restore_report.resumed('x', reason)
            self.assertEqual(outcome, answer.pop(key))
            self.assertFalse(any(answer.values()))
