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

"""Nova moves a member between two hosts with an agent on each.

Released Nova, Placement, libvirt and QEMU; the hosts are containers of this
machine. The stack is started once; each test begins with the member where
the last one has left it.
"""

import os
import subprocess
from typing import Any

import testtools

from nova_vhpc.agent.journal import domain_metadata
from nova_vhpc.tests.stack import client, host, twohosts

QUOTA = {'quota:cpu_period': '100000', 'quota:cpu_quota': '10000'}
MEMBER = {'vhpc:workload': 'parallel', 'vhpc:max_overcommit': '8', **QUOTA}


class TestNovaMigration(testtools.TestCase):
    """One member, and one other server to compare it with."""

    cloud: twohosts.TwoHosts
    admin: client.Client
    member: str
    plain: str

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.cloud = twohosts.TwoHosts()
        cls.addClassCleanup(cls.cloud.stop)
        cls.cloud.start()
        cls.admin = admin = cls.cloud.client('admin')
        admin.make_flavor('member', MEMBER)
        admin.make_flavor('plain', QUOTA)
        image = cls.cloud.add_guest_image('barrier')
        first = cls.cloud.hosts[0].name
        cls.member, cls.plain = (
            admin.boot(name, name, image, host=first)[0]['id']
            for name in ('member', 'plain')
        )
        admin.wait_active([cls.member, cls.plain])

    def setUp(self) -> None:
        super().setUp()
        # Nova says why, if the test before has left one in ERROR.
        self.admin.wait_active([self.member, self.plain])
        for one in self.cloud.hosts:
            self.addCleanup(one.stop_agent)
            self.cloud.start_agent(
                one, slice_policy='gang', pinning_policy='balance'
            )
        self.here, self.there = self.cloud.hosts
        if self.where(self.member) != self.here.name:
            self.here, self.there = self.there, self.here

    def where(self, server: str) -> str:
        return self.admin.server(server)['OS-EXT-SRV-ATTR:host']

    def wait_pinned(self, one: host.Host) -> None:
        """Until the member's vCPUs are on different CPUs by our hand."""

        # Seconds later it is let go: its quota keeps it out of windows.
        def pinned() -> bool:
            pins = one.virsh.cputune(self.member).pins
            return len(set(pins)) == 2 and all(pin.isdigit() for pin in pins)

        host.wait(
            f'pins on {one.name}',
            lambda: one.vm(self.member).get('moves') and pinned(),
        )

    def assert_free(self, one: host.Host) -> None:
        """That the member may use the same CPUs as the other server."""
        (other,) = (
            h for h in self.cloud.hosts if h.name == self.where(self.plain)
        )
        self.assertEqual(
            other.virsh.cputune(self.plain).pins,
            one.virsh.cputune(self.member).pins,
        )

    def act(self, action: str, status: str, body: Any = None) -> None:
        """Have Nova do something to the member, and wait for a status."""
        where = f'/servers/{self.member}/action'
        self.admin.compute('POST', where, {action: body})

        def reached() -> bool:
            server = self.admin.server(self.member)
            self.assertNotEqual('ERROR', server['status'], server.get('fault'))
            return server['status'] == status

        host.wait(status, reached)

    def test_moved_live_and_given_back_as_nova_has_it(self) -> None:
        self.wait_pinned(self.here)
        for server in (self.member, self.plain):
            if self.where(server) != self.there.name:
                self.cloud.move(server, self.there)
        self.wait_pinned(self.there)
        host.wait('no record here', lambda: not self.here.journal())
        self.assertEqual({self.member}, self.there.journal())
        self.assertTrue(self.there.stop_agent())
        ours, theirs = (
            self.there.virsh.cputune(server)
            for server in (self.member, self.plain)
        )
        self.assertEqual(theirs.scheduler, ours.scheduler)
        self.assertEqual(theirs.pins, ours.pins)
        self.assertEqual(theirs.emulator, ours.emulator)
        self.assertEqual(set(), self.there.journal())
        # It has come with pins that were another agent's.
        self.cloud.start_agent(self.there, pinning_policy='balance')
        self.wait_pinned(self.there)

    def use_hook(self) -> None:
        self.there.use_hook(self.cloud.program('nova-vhpc-hook'))
        self.addCleanup(self.there.use_no_hook)

    def test_arrives_as_nova_has_it_where_no_agent_runs(self) -> None:
        self.wait_pinned(self.here)
        self.assertTrue(self.there.stop_agent())
        self.use_hook()
        for server in (self.member, self.plain):
            if self.where(server) != self.there.name:
                self.cloud.move(server, self.there)
        ours, theirs = (
            self.there.virsh.cputune(server)
            for server in (self.member, self.plain)
        )
        self.assertEqual(theirs, ours)
        xml = self.there.virsh('dumpxml', self.member)
        self.assertNotIn('vcpupin', xml)
        self.assertNotIn(domain_metadata.URI, xml)
        self.assertIn('xmlns:nova=', xml)
        self.bring_back_pinned_beyond()
        self.cloud.start_agent(self.there, pinning_policy='balance')
        self.wait_pinned(self.there)

    def bring_back_pinned_beyond(self) -> None:
        """From disk, with what a stopped agent of a larger host leaves."""
        virsh, saved = self.there.virsh, self.there.root / 'saved'
        edited = saved.with_suffix('.xml')
        virsh('save', self.member, str(saved))
        beyond = (os.cpu_count() or 1) + 3
        pins = ''.join(
            f"<vcpupin vcpu='{vcpu}' cpuset='0-{beyond}'/>" for vcpu in (0, 1)
        )
        edited.write_text(
            virsh('save-image-dumpxml', str(saved)).replace(
                '</cputune>', f'{pins}</cputune>'
            )
        )
        words = ('restore', str(saved), '--xml', str(edited))
        self.there.use_no_hook()
        refused = self.assertRaises(
            subprocess.CalledProcessError, virsh, *words
        )
        self.assertIn('out of range', refused.stderr)
        self.use_hook()
        virsh(*words)
        self.assert_free(self.there)

    def test_put_back_first_and_pinned_again(self) -> None:
        self.wait_pinned(self.here)
        self.cloud.restore_one(self.here, self.member)
        self.assert_free(self.here)
        self.cloud.move(self.member, self.there)
        self.wait_pinned(self.there)
        self.assertNotIn('never pinned', self.there.log())

    def test_resized_to_a_flavor_without_us_and_back(self) -> None:
        self.wait_pinned(self.here)
        self.act('resize', 'VERIFY_RESIZE', {'flavorRef': 'plain'})
        host.wait('no record here', lambda: not self.here.journal())
        self.assertEqual({}, self.there.vm(self.member))
        self.assert_free(self.there)
        self.assertEqual(set(), self.there.journal())
        self.act('revertResize', 'ACTIVE')
        self.wait_pinned(self.here)
