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


"""The numbered steps of the main job, each on the same embedded stack.

The stack is released nova, placement, libvirt, QEMU, RabbitMQ and MariaDB, as
processes of their own; see doc/source/quickstart.rst for the steps. It is
started once; each test leaves the agent stopped, and the two members and the
plain server as it found them.
"""

import re
import socket
from typing import Any

import testtools

from nova_vhpc.tests.stack import bridges, client, guests, scenario
from nova_vhpc.topology import model


class TestMainJob(testtools.TestCase):
    """A virtual cluster of two members and a plain server on one host."""

    stage: scenario.Scenario
    members: list[str]
    plain: str
    before: dict[str, guests.Cputune]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.stage = scenario.Scenario()
        cls.addClassCleanup(cls.stage.stop)
        cls.node = socket.gethostname()
        cls.stage.start()
        cls.stage.write_agent_conf(
            slice_policy='atc', pinning_policy='io_pool'
        )
        cls.stage.start_agent()
        cls.stage.wait('uplinks in Placement', cls.stage.has_published)
        # Published uplinks stay in Placement. The dry run lets the guests run
        # with the settings that Nova gave them.
        cls.stage.stop_agent()
        cls.stage.start_agent('--dry-run')
        cls._boot()
        cls.stage.wait(
            'progress on all consoles',
            lambda: all(map(cls._progress, cls.uuids)),
            120,
        )
        cls.before = cls._cputunes()
        cls.stage.stop_agent()

    @classmethod
    def _boot(cls) -> None:
        admin, tenant = cls.stage.admin, cls.stage.tenant
        admin.make_flavor('vhpc', scenario.FLAVOR)
        admin.make_flavor('plain', scenario.PLAIN_FLAVOR)
        images = cls.stage.images
        cls.group = tenant.make_group('cluster')
        made = cls.stage.boot_cluster('member', cls.group)
        other = tenant.boot('plain', 'plain', images['hog'])
        cls.members = [server['id'] for server in made]
        cls.plain = other[0]['id']
        cls.uuids = [*cls.members, cls.plain]
        tenant.wait_active(cls.uuids)

    @classmethod
    def _progress(cls, uuid: str) -> int | None:
        return cls.stage.console(uuid).progress()

    @classmethod
    def _cputunes(cls) -> dict[str, guests.Cputune]:
        return {uuid: cls.stage.virsh.cputune(uuid) for uuid in cls.uuids}

    def start_agent(self) -> None:
        """Start the agent, and wait until it has written to both members."""
        self.stage.start_agent()
        self.addCleanup(self.stage.restore)
        self.addCleanup(self.stage.stop_agent)
        self.wait_for_writes()

    def wait_for_writes(self) -> None:
        self.stage.wait(
            'the agent to write to both members',
            lambda: all(self.changes(uuid) for uuid in self.members),
        )

    def changes(self, uuid: str) -> list[str]:
        """Return what differs from the server's original cputune."""
        return self.before[uuid].changes(self.stage.virsh.cputune(uuid))

    def vms(self) -> dict[str, dict[str, Any]]:
        seen = self.stage.agent_status()
        return {vm['uuid']: vm for vm in seen['vms']}

    def test_1_uplinks_of_real_bridges_are_published(self) -> None:
        found = self.stage.published(self.node)
        self.assertEqual(
            {
                model.provider_name(self.node, bridge, uplink)
                for bridge, uplink in zip(
                    self.stage.bridges.names,
                    self.stage.bridges.uplinks,
                    strict=True,
                )
            },
            {one['name'] for one in found},
        )
        for one in found:
            node, _, bridge, uplink = one['name'].split(':')
            self.assertEqual(
                model.provider_uuid(node, bridge, uplink), one['uuid']
            )
            self.assertEqual(1, one['inventories'][model.UPLINK]['total'])
            self.assertEqual(10000, one['inventories'][model.MBPS]['total'])
            self.assertIn(model.TRAIT_SEPARATE, one['traits'])

    def test_1_uplink_is_reserved_while_its_link_is_down(self) -> None:
        bridge, uplink = (
            self.stage.bridges.names[0],
            self.stage.bridges.uplinks[0],
        )
        name = model.provider_name(self.node, bridge, uplink)

        def free() -> int:
            for one in self.stage.published(self.node):
                if one['name'] == name:
                    inventory = one['inventories'][model.UPLINK]
                    return inventory['total'] - inventory['reserved']
            return -1

        self.stage.start_agent()
        self.addCleanup(self.stage.restore)
        self.addCleanup(self.stage.stop_agent)
        self.addCleanup(bridges.ip, 'link', 'set', uplink, 'up')
        bridges.ip('link', 'set', uplink, 'down')
        self.stage.wait('the link is withheld', lambda: free() == 0)
        bridges.ip('link', 'set', uplink, 'up')
        self.stage.wait('the link is back', lambda: free() == 1)

    def test_2_nova_rejects_an_unknown_extra_spec_by_name(self) -> None:
        error = self.assertRaises(
            client.ApiError,
            self.stage.admin.set_extra_specs,
            'plain',
            {'vhpc:wrkload': 'parallel'},
        )
        self.assertEqual(400, error.status)
        self.assertIn('vhpc:wrkload', error.message)

    def test_2_nova_rejects_a_wrong_value_and_lists_valid_ones(
        self,
    ) -> None:
        error = self.assertRaises(
            client.ApiError,
            self.stage.admin.set_extra_specs,
            'plain',
            {'vhpc:workload': 'fast'},
        )
        self.assertEqual(400, error.status)
        for word in ('vhpc:workload', 'fast', 'parallel'):
            self.assertIn(word, error.message)

    def test_2_nova_stores_valid_extra_specs(self) -> None:
        found = self.stage.admin.compute('GET', '/flavors/vhpc/os-extra_specs')
        self.assertEqual(dict(scenario.FLAVOR), found['extra_specs'])

    def test_3_each_member_claims_an_uplink_of_its_own(self) -> None:
        uplinks = {one['uuid'] for one in self.stage.published(self.node)}
        held = [
            {
                provider
                for provider in self.stage.admin.allocations(uuid)
                if provider in uplinks
            }
            for uuid in self.members
        ]
        self.assertEqual([1, 1], [len(one) for one in held])
        self.assertEqual(uplinks, held[0] | held[1])
        self.assertEqual(
            1, len(self.stage.admin.allocations(self.plain)), 'plain'
        )

    def test_3_nic_is_on_the_bridge_of_the_claimed_uplink(self) -> None:
        names = {p['uuid']: p['name'] for p in self.stage.admin.providers()}
        for uuid in self.members:
            (bridge,) = [
                names[provider].split(':')[2]
                for provider in self.stage.admin.allocations(uuid)
                if ':vhpc:' in names[provider]
            ]
            self.assertEqual(bridge, self.stage.bridge_of(uuid))

    def test_3_filter_rejects_the_slow_host_and_logs_why(self) -> None:
        log = self.stage.cloud.daemon('nova-scheduler').tail(5000)
        reasons = re.findall(
            f'Host {scenario.SLOW_HOST} cannot take a member of this virtual '
            'cluster: (.*)',
            log,
        )
        self.assertNotEqual([], reasons)
        for reason in reasons:
            self.assertIn('1000 Mbit/s', reason)
            self.assertIn('vhpc:min_link_mbps', reason)
        for uuid in self.members:
            server = self.stage.admin.server(uuid)
            self.assertEqual(self.node, server['OS-EXT-SRV-ATTR:host'])

    def test_3_third_member_finds_no_free_uplink(self) -> None:
        tenant = self.stage.tenant
        made = self.stage.boot_cluster('third', self.group, 1)
        uuids = [server['id'] for server in made]
        self.addCleanup(tenant.delete, uuids)
        error = self.assertRaises(client.ApiError, tenant.wait_active, uuids)
        self.assertIn('No valid host', error.message)

    def test_4_guests_report_progress_on_their_consoles(self) -> None:
        first = {uuid: self._progress(uuid) or 0 for uuid in self.uuids}
        self.stage.wait(
            'all guests to go on',
            lambda: all(
                (self._progress(uuid) or 0) > first[uuid]
                for uuid in self.uuids
            ),
        )
        shown = self.stage.tenant.compute(
            'POST',
            f'/servers/{self.members[0]}/action',
            {'os-getConsoleOutput': {'length': 20}},
        )
        self.assertIn('vhpc: barrier', shown['output'])

    def test_5_dry_run_writes_nothing(self) -> None:
        self.stage.start_agent('--dry-run')
        self.addCleanup(self.stage.stop_agent)
        self.stage.wait(
            'a decision for both members',
            lambda: self._decided(),
        )
        for uuid in self.uuids:
            self.assertEqual([], self.changes(uuid))

    def _decided(self) -> bool:
        try:
            vms = self.vms()
        except OSError:
            return False
        return all(vms.get(uuid, {}).get('slice_us') for uuid in self.members)

    def test_5_only_members_are_written_to(self) -> None:
        self.start_agent()
        self.stage.wait(
            'slices below the default',
            lambda: all(
                (self.vms()[uuid]['slice_us'] or 30_000) < 30_000
                for uuid in self.members
            ),
        )
        vms = self.vms()
        self.assertEqual(set(self.members), set(vms))
        for uuid in self.members:
            vm = vms[uuid]
            self.assertIsNotNone(vm['sync_latency_us'])
            self.assertIsNotNone(vm['io_events'])
            # Siblings on different CPUs.
            self.assertEqual(2, len(set(vm['vcpu_pins'])))
        for uuid in self.members:
            tune = self.stage.virsh.cputune(uuid)
            period, quota = int(tune['vcpu_period']), int(tune['vcpu_quota'])
            # The period gets shorter, but quota / period, the share that the
            # flavor gives, stays.
            self.assertAlmostEqual(0.3, quota / period, delta=0.02)
            self.assertGreaterEqual(period, 1000)
        self.assertEqual([], self.changes(self.plain))

    def test_5_both_members_have_the_cluster_of_their_group(self) -> None:
        self.start_agent()
        clusters = self.stage.wait(
            'the group from Nova',
            lambda: (
                found
                if all(
                    found := [
                        self.vms()[uuid]['cluster'] for uuid in self.members
                    ]
                )
                else None
            ),
        )
        self.assertEqual([self.group] * 2, clusters)

    def test_5_members_go_to_the_io_pool_together(self) -> None:
        self.start_agent()
        bridge = self.stage.bridge_of(self.members[0])
        number = self.stage.bridges.names.index(bridge)
        # Only one member receives packets.
        with bridges.traffic(self.stage.bridges.cables[number]):
            self.stage.wait(
                'I/O phase of both members',
                lambda: all(
                    self.vms()[uuid]['phase'] == 'io' for uuid in self.members
                ),
                90,
            )
        vms = self.vms()
        self.assertGreater(vms[self.members[0]]['io_events'] or 0, 50)

    def test_5_values_reset_by_a_hard_reboot_are_written_again(self) -> None:
        self.start_agent()
        uuid = self.members[0]
        run = self.stage.virsh('domid', uuid)
        self.stage.tenant.compute(
            'POST',
            f'/servers/{uuid}/action',
            {'reboot': {'type': 'HARD'}},
        )
        self.stage.wait(
            'a new run of the domain',
            lambda: (
                self.stage.virsh('domid', uuid).strip()
                not in ('', '-', run.strip())
            ),
        )
        self.wait_for_writes()

    def test_6_stop_restores_all_servers(self) -> None:
        self.start_agent()
        self.assertTrue(self.stage.stop_agent(timeout_s=10))
        for uuid in self.uuids:
            self.assertEqual([], self.changes(uuid))

    def test_6_restore_after_a_crash_restores_all_servers(self) -> None:
        self.start_agent()
        self.stage.kill_agent()
        for uuid in self.members:
            self.assertNotEqual([], self.changes(uuid))
        done = self.stage.restore()
        self.assertEqual(0, done.returncode, done.stderr)
        for uuid in self.uuids:
            self.assertEqual([], self.changes(uuid))
