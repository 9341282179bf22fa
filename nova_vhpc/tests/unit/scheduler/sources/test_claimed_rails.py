# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

from oslotest import base

from nova_vhpc.scheduler.sources import claimed_rails, snapshot
from nova_vhpc.topology import model


def uplink(uuid, rail, tunnel=True):
    return snapshot.UplinkState(
        uuid,
        model.BridgeKind.SEPARATE,
        'br',
        'eth',
        1000,
        1,
        0,
        tunnel=tunnel,
        rail=rail,
    )


HOSTS = {
    'root1': snapshot.HostUplinks((uplink('a', 'r1'), uplink('b', 'r2'))),
    'root2': snapshot.HostUplinks(
        (uplink('c', 'r1'), uplink('d', ''), uplink('e', '', False))
    ),
}


class ClaimedRailsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.reads = []
        self.claims = {}

    def get(self, path, version):
        self.reads.append(path)
        claimed = self.claims.get(path.removeprefix('/allocations/'), ())
        return {
            'allocations': {
                'root': {'resources': {'VCPU': 1}},
                **{uuid: {'resources': {model.UPLINK: 1}} for uuid in claimed},
            }
        }

    def of_members(self, *uuids):
        return claimed_rails.of_members(uuids, HOSTS, self.get)

    def test_members_are_counted_by_host_and_rail(self):
        self.claims = {'1': ['a'], '2': ['b'], '3': ['c'], '4': ['d']}
        self.assertEqual(
            {'root1': {'r1': 1, 'r2': 1}, 'root2': {'r1': 1, '': 1}},
            self.of_members('1', '2', '3', '4'),
        )

    def test_members_without_uplink_for_tunnels_do_not_count(self):
        self.claims = {'1': ['e'], '2': ['gone']}
        self.assertEqual({}, self.of_members('1', '2', '3'))

    def test_no_more_members_are_read_than_needed(self):
        members = [str(n) for n in range(64)]
        self.of_members(*members)
        self.assertEqual(claimed_rails.MOST_READS, len(self.reads))
        self.claims = {uuid: ['a'] for uuid in members}
        self.reads.clear()
        self.of_members(*members)
        self.assertEqual(claimed_rails.MOST_MEMBERS, len(self.reads))
