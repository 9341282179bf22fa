# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Answers that no Placement gives, as from a proxy in between."""

import json
from typing import Any
from unittest import mock

import requests
from oslotest import base

from nova_vhpc.placement import client, provider_tree

ROOT = 'aaaaaaaa-0000-4000-8000-000000000001'

GARBAGE: tuple[Any, ...] = (
    *(None, [], 'x', 7, {}),
    {'resource_providers': None},
    {'resource_providers': [None]},
    {'resource_providers': [{}]},
    {'resource_providers': {'uuid': ROOT}},
    {'resource_provider_generation': 'x', 'inventories': {}, 'traits': []},
    {'resource_provider_generation': 1, 'inventories': [1], 'traits': 7},
    {'usages': {'CUSTOM_VHPC_UPLINK': 'x'}},
    {'usages': []},
    {'allocations': {ROOT: None}},
    {'allocations': [ROOT]},
)


class Adapter:
    """Answers each request with the same bytes and status 200."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def request(self, url: str, method: str, **_: Any) -> requests.Response:
        response = requests.Response()
        response.status_code = 200
        response._content = self._content
        return response


def reads(content: bytes) -> dict[str, Any]:
    """Return each method that reads, of a client that gets an answer."""
    placement = client.PlacementClient(Adapter(content))
    return {
        'find_root': lambda: placement.find_root(uuid=ROOT),
        'children': lambda: placement.children(ROOT),
        'tree_of_root': lambda: placement.tree_of_root(ROOT),
        'inventories': lambda: placement.inventories(ROOT),
        'traits': lambda: placement.traits(ROOT),
        'claims': lambda: placement.claims(ROOT),
        'claimed_uplinks': lambda: placement.claimed_uplinks(ROOT),
    }


class GarbageTest(base.BaseTestCase):
    def test_answer_that_is_not_json_is_an_error_of_placement(self) -> None:
        for content in (b'', b'<html>', b'\xff\xfe', b'{"usages": {'):
            for name, read in reads(content).items():
                error = self.assertRaises(client.PlacementError, read)
                self.assertIn('not one of Placement', str(error), name)

    def test_answer_of_another_shape_is_an_error_of_placement(self) -> None:
        for garbage in GARBAGE:
            failed = set()
            for name, read in reads(json.dumps(garbage).encode()).items():
                try:
                    read()
                except client.PlacementError:
                    failed.add(name)
            # Any other exception fails the test. One of them may read
            # what another one cannot.
            self.assertLessEqual(5, len(failed), garbage)


class RootTest(base.BaseTestCase):
    def test_provider_of_another_name_is_named_once(self) -> None:
        placement = mock.create_autospec(client.PlacementClient, instance=True)
        placement.find_root.side_effect = lambda name: (f'id-{name}', name)
        tree = provider_tree.Providers(placement, ['c1', 'c1.example.org'])
        with self.assertLogs(provider_tree.LOG, 'WARNING') as logs:
            for _ in range(2):
                self.assertEqual(('id-c1', 'c1'), tree.root())
        (line,) = logs.output
        for word in ('c1 (taken)', 'c1.example.org', 'node'):
            self.assertIn(word, line)
