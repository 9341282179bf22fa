# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""The lines above and below the table."""

from nova_vhpc.tests import base
from nova_vhpc.tests.unit.top import documents
from nova_vhpc.top import lines, order, reader
from nova_vhpc.top.model import Cluster
from nova_vhpc.top.sources import Answers


def clusters(*vms: dict) -> list[Cluster]:
    document = documents.document(*vms)
    return order.clusters(reader.snapshot(Answers({'': document})).servers)


class DetailTest(base.TestCase):
    def test_cluster_names_the_server_that_receives_least(self) -> None:
        (cluster,) = clusters(
            documents.vm('wn-1', received=0.9),
            documents.vm('wn-2', received=0.7, reason='no gang window'),
            documents.vm('wn-3', received=None),
        )
        self.assertEqual(
            [
                f'3f9a6c21: cluster {documents.WEATHER}',
                '3 servers, 48 vCPUs on compute-1',
                'wn-2 receives least: 70% of the CPU time that stock Linux '
                'would give',
                'wn-1: gang window',
                'wn-2: no gang window',
            ],
            [cell.text for cell in lines.detail(cluster)],
        )

    def test_cluster_that_is_named_keeps_its_name(self) -> None:
        (cluster,) = clusters(documents.vm('oc-1', documents.OCEAN))
        self.assertEqual(
            f'ocean: cluster {documents.OCEAN}', lines.detail(cluster)[0].text
        )
        (cluster,) = clusters(documents.vm('alone', None))
        self.assertEqual('no cluster', lines.detail(cluster)[0].text)

    def test_server_has_all_that_columns_may_lack(self) -> None:
        ((server,),) = (c.servers for c in clusters(documents.vm('wn-1')))
        text = '\n'.join(cell.text for cell in lines.detail(server))
        for words in (
            'wn-1 (instance-wn-1, uuid-of-wn-1) on compute-1',
            'gang window',
            f'cluster {documents.WEATHER}',
            '16 vCPUs on CPUs 0-15',
            'slice 5 ms, period 100 ms, quota none, shares 1024',
            'received 99%',
        ):
            self.assertIn(words, text)

    def test_many_names_are_counted(self) -> None:
        found = clusters(
            *(documents.vm(f'wn-{n}', problem='full') for n in range(1, 10))
        )
        self.assertEqual(
            ['wn-1, wn-2, wn-3, wn-4, wn-5, wn-6 and 3 more: full'],
            [cell.text for cell in lines.notes(found)],
        )
