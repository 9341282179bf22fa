# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What members of a cluster share when they ask at the same time."""

import concurrent.futures
import json
import threading

from nova_vhpc.tests import base
from nova_vhpc.tests.unit.vendordata import fakes, test_nova
from nova_vhpc.vendordata import answer, nova, shared_answers

PATIENCE_S = 60.0
NUMBERS = range(1, 9)


class Client(test_nova.Client):
    """Nova's API that may hold back an answer.

    :param servers: servers of the group.
    """

    def __init__(self, servers):
        super().__init__(servers)
        self.holds = ''
        self.is_asked = threading.Event()
        self.may_answer = threading.Event()

    def get(self, url, **kwargs):
        found = super().get(url, **kwargs)
        if self.holds and url.startswith(self.holds):
            self.is_asked.set()
            self.may_answer.wait(PATIENCE_S)
        return found


class SharedAnswersTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.client = Client(
            [fakes.server(number, workload='parallel') for number in NUMBERS]
        )
        self.client.holds = '/os-server-groups'
        self.addCleanup(self.client.may_answer.set)
        self.make()

    def make(self, ttl_s=60.0):
        source = nova.NovaClusterSource(self.client, fakes.SECRET)
        self.answers = shared_answers.SharedAnswers(source, ttl_s)

    def of(self, number):
        return json.loads(self.answers.of(fakes.uuid(number), fakes.PROJECT))

    def ask(self, numbers):
        """Start to ask for servers; return what they will get."""
        pool = concurrent.futures.ThreadPoolExecutor(len(numbers))
        self.addCleanup(pool.shutdown)
        return [pool.submit(self.of, number) for number in numbers]

    def asked(self, url):
        return sum(one.startswith(url) for one in self.client.asked)

    def test_nova_is_asked_once_for_members_that_ask_at_once(self):
        first = self.ask([1])
        self.assertTrue(self.client.is_asked.wait(PATIENCE_S))
        others = self.ask(NUMBERS[1:])
        self.client.may_answer.set()
        found = [one.result(PATIENCE_S) for one in [*first, *others]]
        self.assertEqual(list(NUMBERS), [one['rank'] + 1 for one in found])
        self.assertEqual(1, self.asked('/os-server-groups'))
        # Of which group the others are need not be asked.
        self.assertEqual(
            1, sum(self.asked(f'/servers/{fakes.uuid(n)}') for n in NUMBERS)
        )

    def test_common_part_is_made_once(self):
        made = []

        class Answers(answer.Answers):
            def __init__(self, *args):
                made.append(args)
                super().__init__(*args)

        self.patch(shared_answers, 'Answers', Answers)
        self.client.may_answer.set()
        for one in self.ask(NUMBERS):
            one.result(PATIENCE_S)
        self.assertEqual(1, len(made))

    def test_answers_of_a_cluster_are_kept_for_a_while(self):
        self.client.may_answer.set()
        for ttl_s, reads in ((60.0, 1), (0.0, 3)):
            self.make(ttl_s)
            self.client.asked.clear()
            for number in (1, 2, 1):
                self.of(number)
            self.assertEqual(reads, self.asked('/os-server-groups'))

    def test_other_project_gets_nothing_of_what_is_kept(self):
        self.client.may_answer.set()
        self.of(1)
        self.assertRaises(
            nova.NotMember, self.answers.of, fakes.uuid(1), 'another'
        )

    def test_server_of_no_cluster_costs_its_cluster_members_nothing(self):
        """And the other way round."""
        self.client.servers[fakes.uuid(9)] = fakes.server(9)
        self.client.holds = f'/servers/{fakes.uuid(9)}'
        (plain,) = self.ask([9])
        self.assertTrue(self.client.is_asked.wait(PATIENCE_S))
        (member,) = self.ask([1])
        self.client.may_answer.set()
        self.assertIsInstance(plain.exception(PATIENCE_S), nova.NotMember)
        self.assertEqual(0, member.result(PATIENCE_S)['rank'])
        self.assertEqual(1, self.asked(f'/servers/{fakes.uuid(9)}'))

    def test_member_that_the_shared_read_lacks_is_read_again(self):
        """The read may have begun before Nova had the member."""
        new = self.client.servers.pop(fakes.uuid(8))
        first = self.ask([1])
        self.assertTrue(self.client.is_asked.wait(PATIENCE_S))
        self.client.servers[new['id']] = new
        (second,) = self.ask([8])
        self.client.may_answer.set()
        self.assertEqual(7, len(first[0].result(PATIENCE_S)['members']))
        self.assertEqual(8, len(second.result(PATIENCE_S)['members']))

    def test_failure_of_a_read_fails_those_that_share_it(self):
        self.client.aggregates = None
        others = self.ask(NUMBERS)
        self.client.may_answer.set()
        for one in others:
            self.assertIsInstance(one.exception(PATIENCE_S), RuntimeError)
        self.client.aggregates = []
        self.assertEqual(0, self.of(1)['rank'])

    def test_one_read_serves_members_of_two_flavors(self):
        """The first that asks must not decide what the others are told."""
        self.client = test_nova.Client(
            [
                fakes.server(1, network='separate', uplink_nic='0'),
                fakes.server(2, network='multiple-shared', paradigm='hybrid'),
            ]
        )
        self.make()
        for number, network, paradigm, environment in (
            (1, 'separate', 'mpi', {}),
            (2, 'multiple-shared', 'hybrid', {'OMP_NUM_THREADS': '8'}),
        ):
            told = self.of(number)
            self.assertEqual(network, told['cluster']['network'])
            self.assertEqual(paradigm, told['cluster']['paradigm'])
            self.assertEqual(environment, told['mpi']['environment'])
        self.assertEqual(1, self.asked('/os-server-groups'))
