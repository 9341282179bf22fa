# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import ipaddress

from nova_vhpc.tests import base
from nova_vhpc.tests.unit.vendordata import fakes
from nova_vhpc.vendordata import answer, live, model


class AnswerTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.members = [
            fakes.member(1, 'h1', 's1'),
            fakes.member(2, 'h1', 's1'),
            fakes.member(3, 'h2', 's1'),
        ]

    def test_every_member_gets_the_same_hostfile_and_its_own_rank(self):
        cluster = fakes.cluster(self.members)
        answers = [fakes.answered(cluster, m.uuid) for m in self.members]
        self.assertEqual([0, 1, 2], [a['rank'] for a in answers])
        for one in answers:
            self.assertEqual(
                '10.1.0.1 slots=2\n10.1.0.2 slots=2\n10.1.0.3 slots=2\n',
                one['hostfile']['openmpi'],
            )
            self.assertEqual(
                '10.1.0.1:2\n10.1.0.2:2\n10.1.0.3:2\n',
                one['hostfile']['mpich'],
            )
            self.assertTrue(one['cluster']['complete'])
        self.assertEqual(
            ['same-host', 'self', 'same-switch'],
            [m['distance'] for m in answers[1]['members']],
        )

    def test_shared_separate_routes_co_located_peers_by_the_shared_bridge(
        self,
    ):
        # HPCVirt'09 section 4, figure 3.
        cluster = fakes.cluster(self.members)
        self.assertEqual(
            [
                {
                    'destination': '10.1.0.2/32',
                    'via': '10.0.0.2',
                    'src': '10.1.0.1',
                    'mac': 'fa:16:3e:00:00:01',
                    'nic': 0,
                }
            ],
            fakes.answered(cluster, fakes.uuid(1))['routes'],
        )
        self.assertEqual([], fakes.answered(cluster, fakes.uuid(3))['routes'])

    def test_other_configurations_need_no_routes(self):
        for network in ('shared', 'separate', 'multiple-shared', 'exported'):
            cluster = fakes.cluster(self.members, network)
            self.assertEqual(
                [], fakes.answered(cluster, fakes.uuid(1))['routes']
            )

    def test_threads_take_the_slots_of_hybrid_programs(self):
        cluster = fakes.cluster(self.members, paradigm='hybrid')
        found = fakes.answered(cluster, fakes.uuid(1))
        self.assertIn('10.1.0.1 slots=1\n', found['hostfile']['openmpi'])
        self.assertEqual({'OMP_NUM_THREADS': '2'}, found['mpi']['environment'])

    def test_members_with_ipv6_have_names(self):
        # Hydra reads "fd00::2:2" and "[fd00::2]:2" as the hosts "fd00" and
        # "[fd00"; OpenMPI refuses both.
        six = dataclasses.replace(
            self.members[1],
            nics=(model.Nic('m', (ipaddress.ip_address('fd00::2'),)),),
        )
        cluster = fakes.cluster([self.members[0], six])
        found = fakes.answered(cluster, six.uuid)
        name = f'vhpc-{six.uuid}'
        self.assertEqual(
            {
                'openmpi': f'10.1.0.1 slots=2\n{name} slots=2\n',
                'mpich': f'10.1.0.1:2\n{name}:2\n',
            },
            found['hostfile'],
        )
        self.assertEqual(f'fd00::2 {name}\n', found['hosts'])
        self.assertEqual('fd00::2', found['members'][1]['address'])
        without = fakes.answered(fakes.cluster(self.members), six.uuid)
        self.assertEqual('', without['hosts'])

    def test_each_member_is_answered_by_its_own_flavor(self):
        one, two = (
            dataclasses.replace(member, network=network)
            for member, network in zip(
                self.members, ('multiple-shared', 'separate'), strict=False
            )
        )
        cluster = fakes.mixed([one, two])
        first, second = (
            fakes.answered(cluster, m.uuid) for m in cluster.members
        )
        self.assertEqual('multiple-shared', first['cluster']['network'])
        self.assertEqual('separate', second['cluster']['network'])
        # And yet all have the same hostfile and the same flags.
        self.assertEqual(
            '10.0.0.1:2\n10.1.0.2:2\n', first['hostfile']['mpich']
        )
        self.assertEqual(first['hostfile'], second['hostfile'])
        self.assertEqual(first['mpi'], second['mpi'])

    def test_routes_lead_to_members_of_the_same_configuration(self):
        members = list(fakes.cluster(self.members).members)
        members[1] = dataclasses.replace(members[1], network='separate')
        cluster = fakes.mixed(members)
        self.assertEqual([], fakes.answered(cluster, fakes.uuid(1))['routes'])

    def test_a_member_without_an_address_is_not_in_the_hostfile(self):
        cluster = fakes.cluster([*self.members, fakes.member(4, None, nics=0)])
        found = fakes.answered(cluster, fakes.uuid(4))
        self.assertFalse(found['cluster']['complete'])
        self.assertEqual(3, found['hostfile']['mpich'].count('\n'))
        self.assertEqual(4, len(found['members']))
        self.assertEqual([], found['routes'])

    def test_a_member_that_does_not_run_is_not_in_the_hostfile(self):
        members = list(fakes.cluster(self.members).members)
        members[1] = dataclasses.replace(members[1], running=False)
        found = fakes.answered(fakes.mixed(members), fakes.uuid(1))
        self.assertFalse(found['cluster']['complete'])
        self.assertEqual(
            '10.1.0.1 slots=2\n10.1.0.3 slots=2\n',
            found['hostfile']['openmpi'],
        )
        self.assertEqual(
            [True, False, True],
            [member['running'] for member in found['members']],
        )

    def test_cluster_is_complete_when_members_to_come_are_there(self):
        cluster = fakes.cluster(self.members)
        for expected, complete in ((0, True), (3, True), (4, False)):
            found = fakes.answered(
                dataclasses.replace(cluster, expected=expected), fakes.uuid(1)
            )['cluster']
            self.assertEqual(complete, found['complete'], expected)
            self.assertEqual(max(3, expected), found['expected'])

    def test_status_and_place_of_each_member_are_told(self):
        members = list(fakes.cluster(self.members).members)
        members[1] = dataclasses.replace(
            members[1], running=False, status='SHUTOFF', host=None
        )
        found = fakes.answered(fakes.mixed(members), fakes.uuid(1))['members']
        self.assertEqual(
            [
                ('ACTIVE', 'h1', 's1', None),
                ('ACTIVE', 'h2', 's1', None),
                ('SHUTOFF', None, 's1', None),
            ],
            [(m['status'], m['host'], m['switch'], m['rack']) for m in found],
        )

    def test_programs_of_a_cluster_wait_as_its_flavors_say(self):
        one, two, three = self.members
        passive = dataclasses.replace(one, wait='passive')
        for members, mode in (
            ([one, two, three], 'auto'),
            ([dataclasses.replace(two, wait='active')], 'active'),
            ([passive, dataclasses.replace(two, wait='passive')], 'passive'),
            # A program spans both, and has one environment.
            ([passive, dataclasses.replace(two, wait='active')], 'auto'),
        ):
            cluster = fakes.mixed(members)
            answers = [fakes.answered(cluster, m.uuid) for m in members]
            for found in answers:
                self.assertEqual(answers[0]['wait'], found['wait'])
            wait = answers[0]['wait']
            self.assertEqual(mode, wait['mode'])
            self.assertEqual(mode, wait['environment']['VHPC_WAIT'])
            for launcher in ('openmpi', 'mpich', 'intel', 'slurm'):
                self.assertIn(mode, ' '.join(wait[launcher]), launcher)
            # Only the guest knows whether it has the library.
            self.assertNotIn('LD_PRELOAD', str(wait))

    def test_waiting_is_serialised_once_for_all_members(self):
        answers = answer.Answers(fakes.cluster(self.members))
        common = [
            answers.of(member.uuid).partition(b', "hostfile": ')[2]
            for member in self.members
        ]
        self.assertIn(b'"wait": {"mode": "auto"', common[0])
        self.assertEqual(1, len(set(common)))

    def test_what_agents_say_is_added_and_nothing_else_changes(self):
        cluster = fakes.cluster(self.members)
        without = fakes.answered(cluster, fakes.uuid(1))
        found = fakes.answered(
            cluster, fakes.uuid(1), {fakes.uuid(2): live.Live(held_up_s=1.5)}
        )
        lives = [member.pop('live') for member in found['members']]
        self.assertEqual(without, found)
        self.assertEqual([None, None], [lives[0], lives[2]])
        self.assertEqual(1.5, lives[1]['held_up_s'])
        self.assertIsNone(lives[1]['problem'])

    def test_without_a_secret_members_are_told_all_but_the_ids(self):
        cluster = fakes.cluster(self.members)
        told = fakes.answered(cluster, fakes.uuid(1))
        found = fakes.answered(
            dataclasses.replace(cluster, shows_ids=False), fakes.uuid(1)
        )
        for member in told['members']:
            member.update(dict.fromkeys(('host', 'switch', 'rack')))
        self.assertEqual(told, found)
        self.assertIn('same-host', [m['distance'] for m in found['members']])

    def test_a_server_outside_the_cluster_gets_no_answer(self):
        self.assertRaises(
            KeyError,
            fakes.answered,
            fakes.cluster(self.members),
            fakes.uuid(99),
        )
