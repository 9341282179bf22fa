# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of :mod:`nova_vhpc.explain.cloud.networks`."""

import json
import types
from typing import Any

from keystoneauth1 import exceptions
from oslotest import base

from nova_vhpc.explain.cloud import networks
from nova_vhpc.tests.unit.topology import test_neutron_segments


class NotesTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.status = 200
        self.answers: dict[str, Any] = {
            'networks': [test_neutron_segments.SEVERAL],
            'agents': [test_neutron_segments.OVN],
        }

    def get(self, path: str, microversion: None) -> types.SimpleNamespace:
        """Answer as Neutron does."""
        name = path.partition('?')[0].removeprefix('/')
        body = {name: self.answers[name]}
        return types.SimpleNamespace(
            status_code=self.status, text=json.dumps(body), json=lambda: body
        )

    def notes(self) -> tuple[str, ...]:
        return networks.notes(types.SimpleNamespace(network=self))

    def test_network_that_goes_astray_is_named(self) -> None:
        (note,) = self.notes()
        self.assertIn('hpc (n-1)', note)

    def test_networks_beyond_the_first_page_are_named(self) -> None:
        """Neutron has pages with ``pagination_max_limit``."""
        first = {
            'networks': [{'id': 'n-0', 'name': 'plain'}],
            'networks_links': [
                {'rel': 'next', 'href': 'http://neutron/networks?marker=n-0'}
            ],
        }
        whole = self.get

        def paged(path: str, microversion: None) -> types.SimpleNamespace:
            answer = whole(path, microversion)
            if path.startswith('/networks') and 'marker' not in path:
                answer.json = lambda: first
            return answer

        self.get = paged  # type: ignore[method-assign]
        (note,) = self.notes()
        self.assertIn('hpc (n-1)', note)

    def test_user_who_sees_no_segments_gets_no_note(self) -> None:
        self.answers['networks'] = [{'id': 'n-1', 'name': 'hpc'}]
        self.assertEqual((), self.notes())
        self.status = 403
        self.assertEqual((), self.notes())

    def test_cloud_without_neutron_gets_no_note(self) -> None:
        def refuse(path: str, microversion: None) -> None:
            raise exceptions.EndpointNotFound('no network service')

        self.get = refuse
        self.assertEqual((), self.notes())

    def test_answer_of_a_proxy_gets_no_note(self) -> None:
        self.answers['networks'] = 7
        self.assertEqual((), self.notes())
