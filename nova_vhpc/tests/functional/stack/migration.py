# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Nova moves a member between two hosts with an agent on each.

Each test begins with the member on the host where the previous test left it.
"""

import os
import subprocess
from typing import Any

import testtools

from nova_vhpc.agent.journal import store
from nova_vhpc_lab.stack import host, scenario
from nova_vhpc_lab.testbed import patience

MOVED = {
    'vhpc:workload': 'parallel',
    'vhpc:max_overcommit': '8',
    'quota:cpu_period': '100000',
    'quota:cpu_quota': '10000',
}


class MigrationTests(testtools.TestCase):
    """A member, and a plain server whose cputune it is compared with.

    They run on the stack of the steps before, without the servers of these.

    :ivar pair: the two; empty until the first test of them.
    """

    stage: scenario.Scenario
    uuids: list[str]
    pair: list[str] = []

    @property
    def member(self) -> str:
        return self.pair[0]

    @property
    def plain_server(self) -> str:
        return self.pair[1]

    @classmethod
    def _boot_pair(cls) -> None:
        cls.stage.tenant.delete(cls.uuids)
        admin = cls.stage.admin
        admin.make_flavor('moved', MOVED)
        first = cls.stage.hosts[0].name
        cls.pair = [
            admin.boot(
                flavor, flavor, cls.stage.images['barrier'], host=first
            )[0]['id']
            for flavor in ('moved', 'plain')
        ]

    def start_pinning(self) -> None:
        """Start agents that only pin, without access to Nova."""
        self.cloud, self.admin = self.stage.cloud, self.stage.admin
        if not self.pair:
            self._boot_pair()
        # If the previous test left a server in ERROR, this shows Nova's fault.
        self.admin.wait_active(self.pair)
        for one in self.cloud.hosts:
            self.addCleanup(one.stop_agent)
            self.cloud.start_agent(
                one, slice_policy='none', pinning_policy='balance'
            )
        self.here, self.there = self.cloud.hosts
        if self.host_of(self.member) != self.here.name:
            self.here, self.there = self.there, self.here

    def host_of(self, server: str) -> str:
        return self.admin.server(server)['OS-EXT-SRV-ATTR:host']

    def wait_pinned(self, one: host.Host) -> None:
        """Wait until the agent has pinned the member's vCPUs apart."""

        # Seconds later the agent unpins the member, because a server with a
        # quota of its own takes no part in windows.
        def pinned() -> bool:
            pins = one.virsh.cputune(self.member).pins
            return len(set(pins)) == 2 and all(pin.isdigit() for pin in pins)

        patience.wait(
            f'pins on {one.name}',
            lambda: one.vm(self.member).get('moves') and pinned(),
        )

    def assert_pins_restored(self, one: host.Host) -> None:
        """Assert that the member may use the same CPUs as the plain server."""
        (other,) = (
            h
            for h in self.cloud.hosts
            if h.name == self.host_of(self.plain_server)
        )
        self.assertEqual(
            other.virsh.cputune(self.plain_server).pins,
            one.virsh.cputune(self.member).pins,
        )

    def act(self, action: str, status: str, body: Any = None) -> None:
        """Run an action of Nova's on the member, and wait for a status."""
        path = f'/servers/{self.member}/action'
        self.admin.compute('POST', path, {action: body})

        def reached() -> bool:
            server = self.admin.server(self.member)
            self.assertNotEqual('ERROR', server['status'], server.get('fault'))
            return server['status'] == status

        patience.wait(status, reached)

    def test_7_live_migrated_member_is_pinned_there_and_restored(self) -> None:
        self.start_pinning()
        self.wait_pinned(self.here)
        for server in self.pair:
            if self.host_of(server) != self.there.name:
                self.cloud.move(server, self.there)
        self.wait_pinned(self.there)
        patience.wait('no record here', lambda: not self.here.journal())
        self.assertEqual({self.member}, self.there.journal())
        self.assertTrue(self.there.stop_agent())
        member, plain = (
            self.there.virsh.cputune(server) for server in self.pair
        )
        self.assertEqual(plain.scheduler, member.scheduler)
        self.assertEqual(plain.pins, member.pins)
        self.assertEqual(plain.emulator, member.emulator)
        self.assertEqual(set(), self.there.journal())
        # The member arrived with pins of the other host's agent.
        self.cloud.start_agent(
            self.there, slice_policy='none', pinning_policy='balance'
        )
        self.wait_pinned(self.there)

    def use_hook(self) -> None:
        self.there.use_hook(self.cloud.program('nova-vhpc-hook'))
        self.addCleanup(self.there.use_no_hook)

    def test_7_hook_restores_a_migrated_member_where_no_agent_runs(
        self,
    ) -> None:
        self.start_pinning()
        self.wait_pinned(self.here)
        self.assertTrue(self.there.stop_agent())
        self.use_hook()
        for server in self.pair:
            if self.host_of(server) != self.there.name:
                self.cloud.move(server, self.there)
        member, plain = (
            self.there.virsh.cputune(server) for server in self.pair
        )
        self.assertEqual(plain, member)
        xml = self.there.virsh('dumpxml', self.member)
        self.assertNotIn('vcpupin', xml)
        self.assertNotIn(store.METADATA_URI, xml)
        self.assertIn('xmlns:nova=', xml)
        self.restore_with_pins_to_absent_cpus()
        self.cloud.start_agent(
            self.there, slice_policy='none', pinning_policy='balance'
        )
        self.wait_pinned(self.there)

    def restore_with_pins_to_absent_cpus(self) -> None:
        """Save the member, and restore it pinned to CPUs that do not exist.

        That is how a member arrives from a larger host whose agent stopped.
        """
        virsh, saved = self.there.virsh, self.there.root / 'saved'
        edited = saved.with_suffix('.xml')
        virsh('save', self.member, str(saved))
        absent_cpu = (os.cpu_count() or 1) + 3
        pins = ''.join(
            f"<vcpupin vcpu='{vcpu}' cpuset='0-{absent_cpu}'/>"
            for vcpu in (0, 1)
        )
        edited.write_text(
            virsh('save-image-dumpxml', str(saved)).replace(
                '</cputune>', f'{pins}</cputune>'
            )
        )
        arguments = ('restore', str(saved), '--xml', str(edited))
        self.there.use_no_hook()
        refused = self.assertRaises(
            subprocess.CalledProcessError, virsh, *arguments
        )
        self.assertIn('out of range', refused.stderr)
        self.use_hook()
        virsh(*arguments)
        self.assert_pins_restored(self.there)

    def test_7_member_restored_before_its_migration_is_pinned_again(
        self,
    ) -> None:
        self.start_pinning()
        self.wait_pinned(self.here)
        self.cloud.restore_one(self.here, self.member)
        self.assert_pins_restored(self.here)
        self.cloud.move(self.member, self.there)
        self.wait_pinned(self.there)
        self.assertNotIn('never pinned', self.there.log())

    def test_7_resize_to_a_plain_flavor_restores_the_member(self) -> None:
        self.start_pinning()
        self.wait_pinned(self.here)
        self.act('resize', 'VERIFY_RESIZE', {'flavorRef': 'plain'})
        patience.wait('no record here', lambda: not self.here.journal())
        self.assertEqual({}, self.there.vm(self.member))
        self.assert_pins_restored(self.there)
        self.assertEqual(set(), self.there.journal())
        self.act('revertResize', 'ACTIVE')
        self.wait_pinned(self.here)
