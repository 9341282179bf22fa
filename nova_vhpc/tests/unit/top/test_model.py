# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Clusters and servers, sorted and filtered."""

from nova_vhpc.tests import base
from nova_vhpc.tests.unit.top import documents
from nova_vhpc.top import model, reader
from nova_vhpc.top.model import Order, Server
from nova_vhpc.top.sources import Answers


def servers(*vms: dict) -> list[Server]:
    document = documents.document(*vms)
    return list(reader.snapshot(Answers({'': document})).servers)


FOUND = servers(
    documents.vm('alone', None, received=0.5, sync_latency_us=9.0),
    documents.vm('wn-10', received=0.7, sync_latency_us=1.0, writes=5),
    documents.vm(
        'wn-2', received=0.9, sync_latency_us=None, phase='computing'
    ),
    documents.vm(
        'oc-1', documents.OCEAN, received=0.6, problem='refused', writes=9
    ),
)


def names(*arguments: object) -> list[list[str]]:
    return [
        [server.name for server in cluster.servers]
        for cluster in model.group(FOUND, *arguments)
    ]


class OrderTest(base.TestCase):
    def test_names_are_sorted_as_people_count(self) -> None:
        self.assertEqual([['oc-1'], ['wn-2', 'wn-10'], ['alone']], names())

    def test_servers_without_cluster_are_last_in_any_order(self) -> None:
        for one in Order:
            for backwards in (False, True):
                with self.subTest(order=one, backwards=backwards):
                    self.assertEqual(['alone'], names(one, backwards)[-1])

    def test_what_deserves_a_look_is_first(self) -> None:
        ocean, weather = ['oc-1'], ['wn-10', 'wn-2']
        for one, first in (
            (Order.RECEIVED, [ocean, weather]),
            (Order.STATE, [ocean, weather[::-1]]),
            (Order.WRITES, [ocean, weather]),
        ):
            with self.subTest(one):
                self.assertEqual(first, names(one)[:2])

    def test_unknown_values_are_last_backwards_too(self) -> None:
        for backwards in (False, True):
            found = {
                cluster.uuid: [one.name for one in cluster.servers]
                for cluster in model.group(FOUND, Order.LATENCY, backwards)
            }
            self.assertEqual(['wn-10', 'wn-2'], found[documents.WEATHER])

    def test_backwards_reverses_clusters_and_servers(self) -> None:
        self.assertEqual(
            [['wn-10', 'wn-2'], ['oc-1'], ['alone']], names(Order.NAME, True)
        )

    def test_orders_follow_each_other_in_a_ring(self) -> None:
        seen = [Order.NAME]
        while (following := seen[-1].next()) not in seen:
            seen.append(following)
        self.assertEqual(list(Order), seen)


class FilterTest(base.TestCase):
    def test_all_words_must_be_there_whatever_their_case(self) -> None:
        for words, found in (
            ('', [['oc-1'], ['wn-2', 'wn-10'], ['alone']]),
            ('OCEAN', [['oc-1']]),
            ('fail refused', [['oc-1']]),
            ('wn io', [['wn-10']]),
            ('compute-1 wn compute ', [['wn-2', 'wn-10']]),
            ('uuid-of-wn-2', [['wn-2']]),
            ('nothing', []),
        ):
            with self.subTest(words):
                self.assertEqual(found, names(Order.NAME, False, words))
