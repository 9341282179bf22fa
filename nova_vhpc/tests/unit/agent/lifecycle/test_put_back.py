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

"""What an operator is told after a restore."""

from oslotest import base

from nova_vhpc.agent.lifecycle import put_back, restore_queue


def done(answer: str) -> restore_queue.RestoreAttempt:
    made = restore_queue.RestoreAttempt()
    made.set_result(answer)
    return made


class TestReport(base.BaseTestCase):
    def test_each_vm_by_what_became_of_it(self) -> None:
        tries = {
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
            put_back.report(tries, 60.0),
        )

    def test_waits_no_longer_than_it_may(self) -> None:
        told = put_back.report(
            {
                'a': restore_queue.RestoreAttempt(),
                'b': done(restore_queue.DONE),
            },
            0.01,
        )
        self.assertEqual(['b'], told['restored'])
        self.assertIn('0.01 s', told['failed']['a'])

    def test_none_of_ours(self) -> None:
        self.assertEqual(['x'], put_back.refused('x', None)['unknown'])
        self.assertEqual(
            {'x': 'left alone: no journal'},
            put_back.refused('x', 'no journal')['failed'],
        )
