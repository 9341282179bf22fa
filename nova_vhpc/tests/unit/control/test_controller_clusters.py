# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What a plan publishes to the other hosts of a cluster."""

from nova_vhpc.control import model
from nova_vhpc.control.pinning import base as pinning_base
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.control.builders import make, view, vm


class ClustersTest(base.TestCase):
    def min_slices(self, **config):
        """Return the published slices of two clusters after four ticks."""
        subject = make(pinning=pinning_base.NonePolicy, guard=False, **config)
        for tick in range(4):
            plan = subject.decide(
                view(
                    vm('z', cluster='c'),
                    *(
                        vm(
                            uuid,
                            cluster=cluster,
                            sample=model.Sample(500.0 + growth * tick),
                        )
                        for uuid, cluster, growth in (
                            ('a', 'c', 0.0),
                            ('b', 'c', 100.0),
                            ('d', 'c', 0.0),
                            ('e', 'f', 0.0),
                            ('g', None, 100.0),
                        )
                    ),
                    tick=tick,
                )
            )
        return {name: one.min_slice_us for name, one in plan.clusters.items()}

    def test_least_slice_of_own_members_is_published(self):
        # Each VM counts with the slice that it asked for, although all of the
        # host have b's: f asks for no change of the slice that it has.
        self.assertEqual(
            {'c': 27_000, 'f': 28_000}, self.min_slices(share_slices=True)
        )

    def test_no_slice_is_published_if_slices_are_not_shared(self):
        self.assertEqual({'c': None, 'f': None}, self.min_slices())

    def test_io_phase_of_own_members_is_published(self):
        subject = make(leave_rule='paper')
        for tick in range(120):
            plan = subject.decide(
                view(
                    vm(
                        'a',
                        cluster='c',
                        sample=model.Sample(io_events=tick % 2 * 900.0),
                    ),
                    vm('b', cluster='f'),
                    tick=tick,
                )
            )
        self.assertEqual(
            {'c': 'io', 'f': 'computing'},
            {name: str(one.phase) for name, one in plan.clusters.items()},
        )
