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

"""A newer agent's journal: the VM is freed once, and left alone then."""

import json

import fixtures

from nova_vhpc.agent import cputune
from nova_vhpc.tests.unit.agent import fake_libvirt, test_domains


class TestNewerJournal(test_domains.DomainsCase):
    def test_freed_once_and_left_alone(self) -> None:
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))
        self.write(self.look())
        # A crash, and a newer agent's record without its mark.
        self.made._gate.ending.set()
        record = self.records.path / 'u.json'
        record.write_text(
            json.dumps({**json.loads(record.read_text()), 'version': 99})
        )
        self.domain.mark = None
        self.made = self.make()
        self.made.look('u')
        self.drain()
        self.assertEqual(fake_libvirt.ORIGINAL, self.domain.values)
        self.assertIn('newer', self.made.refused['u'])

        self.domain.values[cputune.SHARES] = 500
        for _ in range(3):
            self.reconcile()
        self.assertEqual(500, self.domain.values[cputune.SHARES])
        self.assertTrue(record.exists())
        self.assertEqual(1, log.output.count('left alone'))
        self.assertEqual(1, log.output.count('of a newer agent'))
