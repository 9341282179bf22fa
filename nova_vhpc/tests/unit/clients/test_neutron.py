# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of :mod:`nova_vhpc.clients.neutron`."""

import json
from typing import Any

from keystoneauth1 import adapter, exceptions, noauth, session
from oslotest import base

from nova_vhpc.clients import neutron
from nova_vhpc.tests import served


class GetTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.asked: list[str] = []
        self.url = self.useFixture(served.Served(self._neutron)).url

    def _neutron(self, environ: Any, start_response: Any) -> list[bytes]:
        self.asked.append(f'{environ["PATH_INFO"]}?{environ["QUERY_STRING"]}')
        start_response('200 OK', [('Content-Type', 'application/json')])
        return [json.dumps({'agents': []}).encode()]

    def adapter(self, endpoint: str) -> adapter.Adapter:
        return adapter.Adapter(
            session.Session(noauth.NoAuth()), endpoint_override=endpoint
        )

    def test_endpoint_may_have_the_version(self) -> None:
        for end in ('', '/', '/v2.0', '/v2.0/'):
            client = self.adapter(self.url.rstrip('/') + end)
            answer = neutron.get(client, '/agents', {'host': ('a', 'b')})
            self.assertEqual({'agents': []}, answer)
        self.assertEqual(['/v2.0/agents?host=a&host=b'] * 4, self.asked)

    def test_all_pages_of_a_list_are_read(self) -> None:
        answers: dict[str, Any] = {
            '/agents?alive=true': {
                'agents': [1, 2],
                'agents_links': [
                    {'rel': 'previous', 'href': 'http://x/v2.0/agents?a=b'},
                    {
                        'rel': 'next',
                        'href': 'http://x/v2.0/agents?alive=true&marker=2',
                    },
                ],
            },
            '/agents?alive=true&marker=2': {'agents': [3]},
        }
        self.assertEqual(
            [1, 2, 3],
            [*neutron.pages(answers.get, '/agents?alive=true', 'agents')],
        )

    def test_page_that_leads_to_itself_is_read_once(self) -> None:
        answer = {
            'agents': [1],
            'agents_links': [{'rel': 'next', 'href': 'http://x/agents?m=1'}],
        }
        self.assertEqual(
            [1, 1],
            [*neutron.pages(lambda path: answer, '/agents', 'agents')],
        )

    def test_missing_endpoint_is_keystoneauths_error(self) -> None:
        client = adapter.Adapter(
            session.Session(noauth.NoAuth()), service_type='network'
        )
        self.assertRaises(
            exceptions.EndpointNotFound, neutron.get, client, '/agents'
        )
