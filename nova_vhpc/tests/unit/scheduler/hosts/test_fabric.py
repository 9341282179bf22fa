# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


import fixtures
from nova import objects
from nova.scheduler import host_manager
from oslotest import base

from nova_vhpc.scheduler.hosts import fabric as fabrics

objects.register_all()


def aggregate(number, names=(), **metadata):
    return objects.Aggregate(
        id=number,
        hosts=list(names),
        metadata={f'vhpc:{key}': metadata[key] for key in metadata},
    )


class FabricTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.fabric = fabrics.Fabric('vhpc:switch', 'vhpc:rack')
        self.state = host_manager.HostState('one', 'one', 'cell')

    def test_one_switch_named_twice_is_no_news(self):
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc.scheduler'))
        self.state.aggregates = [
            aggregate(1, ['one'], switch='same'),
            aggregate(2, ['one'], switch='same', rack='r'),
            aggregate(3, ['one']),
        ]
        self.assertEqual(('same', 'r'), self.fabric.place(self.state))
        self.assertEqual('', log.output)

    def test_no_aggregate(self):
        self.assertEqual((None, None), self.fabric.place(self.state))

    def test_switch_and_rack_may_come_from_two_aggregates(self):
        self.state.aggregates = [
            aggregate(1, switch='a'),
            aggregate(2, other='x'),
            aggregate(3, rack='r'),
        ]
        self.assertEqual(('a', 'r'), self.fabric.place(self.state))

    def test_aggregates_of_two_switches(self):
        # Nova has the aggregates of a host in any order.
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc.scheduler'))
        a = aggregate(1, ['one', 'two'], switch='a', rack='s')
        b = aggregate(2, ['one', 'two'], switch='b', rack='r')
        two = host_manager.HostState('two', 'two', 'cell')
        two.aggregates = [b, a]
        for aggregates in ([a, b], [b, a]):
            fabric = fabrics.Fabric('vhpc:switch', 'vhpc:rack')
            self.state.aggregates = aggregates
            self.assertEqual(('a', 'r'), fabric.place(self.state))
            self.assertEqual(('a', 'r'), fabric.place(two))
            self.assertEqual(('a', 'r'), fabric.place_of('two'))
        for told in ('vhpc:switch: a, b', 'vhpc:rack: r, s'):
            self.assertEqual(1, log.output.count(f'two values of {told}'))

    def test_hosts_that_did_not_pass_are_known_by_their_neighbours(self):
        self.state.aggregates = [
            aggregate(1, ['one', 'full'], switch='a'),
            aggregate(2, ['one', 'full', 'far'], rack='r'),
        ]
        self.fabric.place(self.state)
        self.assertEqual(('a', 'r'), self.fabric.place_of('full'))
        self.assertEqual((None, 'r'), self.fabric.place_of('far'))
        self.assertEqual((None, None), self.fabric.place_of('unknown'))

    def test_racks_that_no_neighbour_tells(self):
        self.state.aggregates = [aggregate(1, ['one', 'full'], switch='a')]
        self.fabric.place(self.state)
        # Where no host has a rack, it does not matter.
        self.assertEqual(set(), self.fabric.racks_missing(['full', 'far']))
        self.state.aggregates = [aggregate(2, ['one'], rack='r')]
        self.fabric.place(self.state)
        self.assertEqual(
            {'full', 'far'}, self.fabric.racks_missing(['one', 'full', 'far'])
        )
        self.fabric.add_racks({'full': 'q', 'far': 'r'})
        self.assertEqual(('a', 'q'), self.fabric.place_of('full'))
        self.assertEqual((None, 'r'), self.fabric.place_of('far'))
        self.assertEqual(set(), self.fabric.racks_missing(['full', 'far']))
