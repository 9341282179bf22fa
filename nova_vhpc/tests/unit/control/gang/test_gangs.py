# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Which parallel VMs form gangs."""

from nova_vhpc.control.gang import gangs
from nova_vhpc.tests import base

ALL = frozenset(range(4))


def member(uuid, vcpus=2, cpus=ALL):
    return gangs.Member(uuid, vcpus, frozenset(cpus))


def keys(formed):
    """Return the members' uuids by the gangs' keys."""
    return {gang.key: [one.uuid for one in gang.members] for gang in formed}


class TestForm(base.TestCase):
    def form(self, *candidates, spans_vms=True):
        """Return gangs of pairs of a cluster and a member."""
        return gangs.form(
            [
                gangs.Candidate(cluster, spans_vms, one)
                for cluster, one in candidates
            ]
        )

    def test_vm_without_cluster_is_a_gang_by_itself(self):
        formed = self.form((None, member('a')), (None, member('b')))
        self.assertEqual({'a': ['a'], 'b': ['b']}, keys(formed))

    def test_members_that_fit_side_by_side_are_one_gang(self):
        formed = self.form(('x', member('p')), ('x', member('q')))
        self.assertEqual({'x': ['p', 'q']}, keys(formed))
        self.assertEqual(4, formed[0].width)

    def test_members_that_do_not_fit_are_gangs_if_programs_stay_inside(self):
        formed = self.form(
            *(('x', member(uuid)) for uuid in 'pqr'), spans_vms=False
        )
        self.assertEqual(
            {'x/p': ['p'], 'x/q': ['q'], 'x/r': ['r']}, keys(formed)
        )

    def test_members_that_do_not_fit_are_no_gangs_if_a_program_spans_them(
        self,
    ):
        self.assertEqual(
            [], self.form(*(('x', member(uuid)) for uuid in 'pqr'))
        )

    def test_one_member_whose_program_spans_vms_decides_for_the_cluster(self):
        self.assertEqual(
            [],
            gangs.form(
                [
                    gangs.Candidate('x', uuid == 'q', member(uuid))
                    for uuid in 'pqr'
                ]
            ),
        )

    def test_cluster_of_single_vcpus_is_a_gang(self):
        formed = self.form(('x', member('p', 1)), ('x', member('q', 1)))
        self.assertEqual({'x': ['p', 'q']}, keys(formed))

    def test_vm_of_one_vcpu_without_cluster_is_no_gang(self):
        self.assertEqual([], self.form((None, member('a', 1))))

    def test_vm_of_one_vcpu_is_a_gang_if_its_program_spans_vms(self):
        self.assertEqual({'x': ['p']}, keys(self.form(('x', member('p', 1)))))
        self.assertEqual([], self.form(('x', member('p', 1)), spans_vms=False))

    def test_single_vcpus_that_do_not_fit_side_by_side_are_no_gangs(self):
        formed = self.form(
            *(('x', member(uuid, 1, {0})) for uuid in 'pq'), spans_vms=False
        )
        self.assertEqual([], formed)

    def test_vm_with_more_vcpus_than_cpus_is_no_gang(self):
        self.assertEqual([], self.form((None, member('a', 3, {0, 1}))))

    def test_member_with_more_vcpus_than_cpus_keeps_its_cluster_out(self):
        formed = self.form(
            ('x', member('a', 3, {0, 1})), ('x', member('b', 1))
        )
        self.assertEqual([], formed)

    def test_gangs_are_in_order_of_their_keys_on_every_host(self):
        formed = self.form(*((None, member(uuid)) for uuid in 'cab'))
        self.assertEqual(['a', 'b', 'c'], [gang.key for gang in formed])


class TestDemand(base.TestCase):
    def test_part_is_that_of_the_member_that_is_entitled_to_least(self):
        (gang,) = gangs.form(
            gangs.Candidate('x', True, member(uuid)) for uuid in 'pq'
        )
        demand = gang.demand({'p': 1.0, 'q': 0.5})
        self.assertEqual(('x', 4, 0.25), demand)

    def test_part_is_at_most_the_whole_time(self):
        (gang,) = gangs.form([gangs.Candidate(None, True, member('a'))])
        self.assertEqual(1.0, gang.demand({'a': 2.5}).part)

    def test_member_without_entitlement_gives_no_part(self):
        (gang,) = gangs.form([gangs.Candidate(None, True, member('a'))])
        self.assertEqual(0.0, gang.demand({}).part)
