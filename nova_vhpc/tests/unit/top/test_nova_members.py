# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Where Nova says the servers of a cluster are."""

from oslo_config import cfg

from nova_vhpc.agent.clusters import nova
from nova_vhpc.conf import nova_api
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.top import documents
from nova_vhpc.top import nova_members


class NovaMembersTest(base.TestCase):
    def setUp(self) -> None:
        super().setUp()
        self.conf = cfg.ConfigOpts()
        nova_api.register_opts(self.conf)
        self.conf([], default_config_files=[])
        self.conf.set_override('auth_type', 'none', 'vhpc_nova')
        self.now_s = 0.0
        self.asked = 0
        self.cluster = documents.WEATHER
        self.answer: dict[str, str | None] | Exception = {'u1': 'c1'}

    def members(
        self, cluster: str = documents.WEATHER
    ) -> nova_members.NovaMembers:
        made = nova_members.NovaMembers(self.conf, cluster, lambda: self.now_s)
        made._servers.members_of = self.members_of
        return made

    def members_of(self, cluster: str) -> dict[str, str | None]:
        self.assertEqual(self.cluster, cluster)
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def test_nova_is_asked_once_a_minute(self) -> None:
        made = self.members()
        for self.now_s, asked in ((0, 1), (59.9, 1), (60, 2), (61, 2)):
            self.assertEqual(({'u1': 'c1'}, []), made.find())
            self.assertEqual(asked, self.asked)

    def test_last_answer_stays_while_nova_is_away(self) -> None:
        made = self.members()
        made.find()
        self.answer = nova.NovaError('HTTP 503')
        self.now_s = 60
        for _ in range(2):
            placed, (remark,) = made.find()
            self.assertEqual({'u1': 'c1'}, placed)
            self.assertIn('HTTP 503', remark)
        self.answer = {}
        self.now_s = 120
        self.assertEqual(({}, []), made.find())

    def test_without_credentials_nova_is_not_asked(self) -> None:
        self.conf.set_override('auth_type', None, 'vhpc_nova')
        placed, (remark,) = self.members().find()
        self.assertEqual(({}, 0), (placed, self.asked))
        self.assertIn('[vhpc_nova] has no credentials', remark)

    def test_cluster_of_a_groups_file_is_not_asked_for(self) -> None:
        placed, (remark,) = self.members('ocean').find()
        self.assertEqual(({}, 0), (placed, self.asked))
        self.assertIn('Nova knows no cluster ocean', remark)

    def test_cluster_of_a_project_is_asked_for(self) -> None:
        self.cluster = documents.OCEAN
        self.assertEqual(
            ({'u1': 'c1'}, []), self.members(documents.OCEAN).find()
        )
