# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""The numbered steps of the main job, each on the same embedded stack.

The stack is released nova, placement, libvirt, QEMU, RabbitMQ and MariaDB, as
processes of their own; see doc/source/quickstart.rst for the steps. It is
started once. The tests run in the order of their names and leave the servers
as they found them, up to step 7, which has other servers. Each test says
whether it needs running agents, so that they start seldom.
"""

import re
from typing import Any

from nova_vhpc.tests.functional.stack import migration
from nova_vhpc.topology import model
from nova_vhpc_lab.stack import client, guests, realhosts, scenario

PACKETS = 20
NOISE = 5
"""Most other frames on a used uplink, such as ARP between the hosts."""


class TestMainJob(migration.MigrationTests):
    """A virtual cluster on two hosts, and a plain server.

    :ivar running: whether the agents run.
    """

    running = False
    failed = False
    members: list[str]
    plain: str
    before: dict[str, guests.Cputune]
    ports: dict[str, dict[str, str]]
    rails: dict[str, int]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.stage = scenario.Scenario()
        cls.addClassCleanup(cls.stage.stop)
        cls.stage.start()
        cls.stage.write_agent_conf(
            slice_policy='atc', pinning_policy='io_pool'
        )
        cls.stage.start_agents()
        cls.stage.wait('uplinks in Placement', cls.stage.has_published)
        # Published uplinks stay in Placement. The dry run lets the guests run
        # with the settings that Nova gave them.
        cls.stage.stop_agents()
        cls.stage.start_agents('--dry-run')
        cls._boot()
        cls.stage.wait(
            'progress on all consoles',
            lambda: all(map(cls._progress, cls.uuids)),
        )
        cls.stage.wait(
            'addresses of all members',
            lambda: all(
                cls.stage.console(uuid).address() for uuid in cls.members
            ),
        )
        cls.before = cls._cputunes()
        cls.rails = {
            uuid: cls.stage.claimed_rail(uuid) for uuid in cls.members
        }
        cls.ports = {
            uuid: cls.stage.external_ids(uuid) for uuid in cls.members
        }
        cls.stage.stop_agents()

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
        return {uuid: cls.stage.cputune(uuid) for uuid in cls.uuids}

    def setUp(self) -> None:
        super().setUp()
        # The last cleanup, after those that need the agents.
        self.addCleanup(self._stop_after_failure)
        self.addOnException(self._note_failure)

    def _note_failure(self, _error: Any) -> None:
        self.failed = True

    def _stop_after_failure(self) -> None:
        if self.failed:
            self.without_agents()

    def with_agents(self) -> None:
        """Have agents that have written to all members."""
        if not self.running:
            type(self).running = True
            self.stage.start_agents()
        self.wait_for_writes()

    def without_agents(self) -> None:
        """Have no agents, and servers with their original settings."""
        if self.running:
            type(self).running = False
            self.stage.stop_agents()
            self.stage.restore()

    def start_pinning(self) -> None:
        self.without_agents()
        super().start_pinning()

    def wait_for_writes(self) -> None:
        self.stage.wait(
            'the agents to write to all members',
            lambda: all(self.changes(uuid) for uuid in self.members),
        )
        self.stage.wait(
            'the encap IPs of the claimed uplinks',
            lambda: all(
                self.stage.encap_ip(uuid) == self.claimed_encap_ip(uuid)
                for uuid in self.members
            ),
        )

    def claimed_encap_ip(self, uuid: str) -> str:
        switch = self.stage.cloud.switch(self.stage.host_of(uuid))
        return switch.encap_ips[self.rails[uuid]]

    def changes(self, uuid: str) -> list[str]:
        """Return what differs from the server's original settings."""
        changes = self.before[uuid].changes(self.stage.cputune(uuid))
        if uuid in self.ports:
            port = self.stage.external_ids(uuid)
            if port != self.ports[uuid]:
                changes.append(f'port: {self.ports[uuid]} -> {port}')
        return changes

    def test_1_uplinks_of_open_vswitch_are_published(self) -> None:
        for each in self.stage.hosts:
            found = self.stage.published(each.name)
            self.assertEqual(
                {
                    model.provider_name(each.name, f'br-n{rail}', f'n{rail}')
                    for rail in range(realhosts.UPLINKS)
                },
                {one['name'] for one in found},
            )
            for one in found:
                node, _, bridge, uplink = one['name'].split(':')
                self.assertEqual(
                    model.provider_uuid(node, bridge, uplink), one['uuid']
                )
                self.assertEqual(1, one['inventories'][model.UPLINK]['total'])
                self.assertEqual(
                    10000, one['inventories'][model.MBPS]['total']
                )
                self.assertIn(model.TRAIT_SEPARATE, one['traits'])

    def test_1_uplink_is_reserved_while_its_link_is_down(self) -> None:
        here = self.stage.hosts[0]
        place = self.stage.cloud.switch(here).place
        name = model.provider_name(here.name, 'br-n0', 'n0')

        def free() -> int:
            for one in self.stage.published(here.name):
                if one['name'] == name:
                    inventory = one['inventories'][model.UPLINK]
                    return inventory['total'] - inventory['reserved']
            return -1

        def wait_until_it_is_back() -> None:
            self.stage.wait('the link is back', lambda: free() == 1)

        self.with_agents()
        # Other tests look at what is published.
        self.addCleanup(wait_until_it_is_back)
        self.addCleanup(place.ip, 'link', 'set', 'dev', 'n0', 'up')
        place.ip('link', 'set', 'dev', 'n0', 'down')
        self.stage.wait('the link is withheld', lambda: free() == 0)
        place.ip('link', 'set', 'dev', 'n0', 'up')
        wait_until_it_is_back()

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
        uplinks = {
            one['uuid']
            for each in self.stage.hosts
            for one in self.stage.published(each.name)
        }
        held = [
            provider
            for uuid in self.members
            for provider in self.stage.admin.allocations(uuid)
            if provider in uplinks
        ]
        self.assertEqual(len(self.members), len(held))
        self.assertEqual(len(self.members), len(set(held)))
        self.assertEqual(
            1, len(self.stage.admin.allocations(self.plain)), 'plain'
        )

    def test_3_members_have_the_addresses_that_neutron_gave_them(self) -> None:
        for uuid in self.members:
            (nics,) = self.stage.admin.server(uuid)['addresses'].values()
            self.assertEqual(
                [nic['addr'] for nic in nics],
                [self.stage.console(uuid).address()],
            )

    def _pairs(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """Return two members of one host, and two of two hosts."""
        by_host: dict[str, list[str]] = {}
        for uuid in self.members:
            by_host.setdefault(self.stage.host_of(uuid).name, []).append(uuid)
        (together,) = [some for some in by_host.values() if len(some) == 2]
        (alone,) = [some for some in by_host.values() if len(some) == 1]
        return (together[0], together[1]), (together[1], alone[0])

    def test_3_frames_between_hosts_are_on_the_claimed_uplinks(self) -> None:
        self.with_agents()
        _, pair = self._pairs()
        frames = self.stage.frames(*pair, PACKETS)
        for uuid in pair:
            host = self.stage.host_of(uuid).name
            self.assert_rail(self.rails[uuid], frames[host, 'in'])

    def assert_rail(self, rail: int, frames: list[int]) -> None:
        """Assert that one uplink carried all packets, and no other any."""
        self.assertEqual(0, sum(frames) - frames[rail], frames)
        self.assertGreaterEqual(frames[rail], PACKETS)
        self.assertLessEqual(frames[rail], PACKETS + NOISE)

    def test_3_frames_within_a_host_are_on_no_uplink(self) -> None:
        self.with_agents()
        pair, _ = self._pairs()
        for frames in self.stage.frames(*pair, PACKETS).values():
            self.assertEqual([0] * realhosts.UPLINKS, frames)

    def test_3_frames_without_agents_are_on_the_default_uplink(self) -> None:
        self.without_agents()
        _, pair = self._pairs()
        for frames in self.stage.frames(*pair, PACKETS).values():
            self.assert_rail(0, frames)

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
            self.assertIn(
                server['OS-EXT-SRV-ATTR:host'],
                [each.name for each in self.stage.hosts],
            )

    def test_3_more_members_than_uplinks_find_no_host(self) -> None:
        tenant = self.stage.tenant
        free = realhosts.UPLINKS * len(self.stage.hosts) - len(self.members)
        made = self.stage.boot_cluster('more', self.group, free + 1)
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

    def test_5_a_dry_run_writes_nothing(self) -> None:
        self.without_agents()
        self.stage.start_agents('--dry-run')
        self.addCleanup(self.stage.stop_agents)
        self.stage.wait(
            'a decision for all members',
            lambda: self._decided(),
        )
        for uuid in self.uuids:
            self.assertEqual([], self.changes(uuid))

    def _decided(self) -> bool:
        try:
            vms = self.stage.vms()
        except OSError:
            return False
        return all(vms.get(uuid, {}).get('slice_us') for uuid in self.members)

    def test_5_only_members_are_written_to(self) -> None:
        self.with_agents()
        self.stage.wait(
            'slices below the default',
            lambda: all(
                (self.stage.vms()[uuid]['slice_us'] or 30_000) < 30_000
                for uuid in self.members
            ),
        )
        vms = self.stage.vms()
        self.assertEqual(set(self.members), set(vms))
        for uuid in self.members:
            vm = vms[uuid]
            self.assertIsNotNone(vm['sync_latency_us'])
            self.assertIsNotNone(vm['io_events'])
            # Siblings on different CPUs.
            self.assertEqual(2, len(set(vm['vcpu_pins'])))
        for uuid in self.members:
            tune = self.stage.cputune(uuid)
            period, quota = int(tune['vcpu_period']), int(tune['vcpu_quota'])
            # The period gets shorter, but quota / period, the share that the
            # flavor gives, stays.
            self.assertAlmostEqual(0.2, quota / period, delta=0.02)
            self.assertGreaterEqual(period, 1000)
        self.assertEqual([], self.changes(self.plain))

    def test_5_all_members_have_the_cluster_of_their_group(self) -> None:
        self.with_agents()
        clusters = self.stage.wait(
            'the group from Nova',
            lambda: (
                found
                if all(
                    found := [
                        self.stage.vms()[uuid]['cluster']
                        for uuid in self.members
                    ]
                )
                else None
            ),
        )
        self.assertEqual([self.group] * len(self.members), clusters)

    def test_5_packets_to_one_member_move_all_to_the_io_pool(self) -> None:
        self.with_agents()
        receiver = self.members[0]
        (elsewhere, *_) = [
            each
            for each in self.stage.hosts
            if each is not self.stage.host_of(receiver)
        ]
        outsider = self.stage.start_outsider(elsewhere)
        address = self.stage.console(receiver).address() or ''
        # Only one member receives packets.
        with outsider.traffic(address):
            self.stage.wait(
                'I/O phase of all members',
                lambda: all(
                    self.stage.vms()[uuid]['phase'] == 'io'
                    for uuid in self.members
                ),
            )
            self.stage.wait(
                'the packets of a period',
                lambda: (self.stage.vms()[receiver]['io_events'] or 0) > 50,
            )

    def test_5_values_reset_by_a_hard_reboot_are_written_again(self) -> None:
        self.with_agents()
        uuid = self.members[0]
        virsh = self.stage.host_of(uuid).virsh
        run = virsh('domid', uuid)
        self.stage.tenant.compute(
            'POST',
            f'/servers/{uuid}/action',
            {'reboot': {'type': 'HARD'}},
        )
        self.stage.wait(
            'a new run of the domain',
            lambda: virsh('domid', uuid).strip() not in ('', '-', run.strip()),
        )
        self.wait_for_writes()

    def test_6_stop_restores_all_servers(self) -> None:
        self.with_agents()
        self.addCleanup(self.stage.restore)
        type(self).running = False
        self.assertTrue(self.stage.stop_agents(timeout_s=10))
        for uuid in self.uuids:
            self.assertEqual([], self.changes(uuid))

    def test_6_restore_after_a_crash_restores_all_servers(self) -> None:
        self.with_agents()
        self.addCleanup(self.stage.restore)
        type(self).running = False
        self.stage.kill_agents()
        for uuid in self.members:
            self.assertNotEqual([], self.changes(uuid))
        self.stage.restore()
        for uuid in self.uuids:
            self.assertEqual([], self.changes(uuid))
