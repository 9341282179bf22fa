# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Damaged answers of Nova and Placement, and requests of Nova."""

import contextlib
import io
import json
import random
from typing import Any

from nova_vhpc.agent.clusters import nova as nova_servers
from nova_vhpc.clients import openstack
from nova_vhpc.explain import cloud, explain
from nova_vhpc.explain.request import ExplainRequest, Flavor, RequestError
from nova_vhpc.scheduler.sources import snapshot
from nova_vhpc.topology import model
from nova_vhpc.vendordata import nova, shared_answers, wsgi
from nova_vhpc_lab.bench import cloud_inventory
from nova_vhpc_lab.sim.cloud import inventory
from nova_vhpc_lab.soak import damage

UPLINK = {
    model.UPLINK: {'capacity': 1, 'used': 0},
    model.MBPS: {'capacity': 1000, 'used': 0},
}
PLACEMENT = {
    'provider_summaries': {
        'r': {
            'resources': {'VCPU': {'capacity': 8, 'used': 1}},
            **{'traits': [], 'root_provider_uuid': 'r'},
        },
        'm': {
            'resources': {model.STAMP: {'capacity': 29000000, 'used': 0}},
            **{'traits': [], 'root_provider_uuid': 'r'},
        },
        'u': {
            'resources': UPLINK,
            **{'traits': [model.TRAIT_SEPARATE], 'root_provider_uuid': 'r'},
        },
    }
}
SERVER_ID = '10000000-0000-4000-8000-000000000001'
SERVER = {
    **{'id': SERVER_ID, 'name': 'n', 'tenant_id': 'p', 'hostId': 'hash'},
    **{'status': 'ACTIVE', 'OS-EXT-SRV-ATTR:host': 'h1'},
    **{'server_groups': ['g'], 'scheduler_hints': {'group': ['g']}},
    'metadata': {'vhpc:cluster': 'x'},
    'flavor': {
        **{'vcpus': 2, 'ram': 64},
        'extra_specs': {
            **{'vhpc:workload': 'parallel', 'vhpc:cluster': 'c'},
            'vhpc:network': 'shared-separate',
        },
    },
    'addresses': {
        'net': [
            {
                **{'OS-EXT-IPS:type': 'fixed', 'addr': f'10.0.0.{nic}'},
                'OS-EXT-IPS-MAC:mac_addr': f'52:54:00:00:00:0{nic}',
            }
            for nic in range(2)
        ]
    },
}
GROUP = {
    **{'id': 'g', 'name': 'weather', 'members': [SERVER_ID]},
    **{'project_id': 'p', 'policy': 'affinity', 'rules': {}},
}
AGGREGATE = {'name': 'a', 'hosts': ['h1'], 'metadata': {'vhpc:rack': 'r'}}
HYPERVISOR = {
    **{'id': 'r', 'state': 'up', 'status': 'enabled', 'vcpus': 8},
    **{'vcpus_used': 1, 'service': {'host': 'h1', 'disabled_reason': None}},
}
INVENTORIES = {
    name: {'total': 8, 'reserved': 0, 'allocation_ratio': 1.5}
    for name in ('VCPU', 'MEMORY_MB')
}
FLAVOR = Flavor(2, 64, {'vhpc:network': 'separate'})
HEADERS = {
    **{'REQUEST_METHOD': 'POST', 'PATH_INFO': '/', 'REMOTE_ADDR': '::1'},
    **{'CONTENT_LENGTH': '', 'HTTP_X_ROLES': 'service'},
}


class _Response:
    def __init__(self, status_code: int, text: str) -> None:
        self.status_code = status_code
        self.text = text

    def json(self) -> Any:
        return json.loads(self.text)


class _Cloud:
    """Nova and Placement, a fifth of whose answers is damaged."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._server_pages = 0
        self._group_pages = 0
        self.compute = self.placement = self

    def get(self, url: str, **options: Any) -> _Response:
        """Answer a GET request."""
        body: Any = self._body(url)
        rng = self._rng
        if rng.random() < 0.2:
            body = damage.document(rng, body)
        status = 200
        if rng.random() < 0.03:
            status = rng.choice((400, 403, 404, 500))
        text = json.dumps(body)
        if rng.random() < 0.03:
            text = damage.characters(rng, text)
        return _Response(status, text)

    def _body(self, url: str) -> Any:
        if url.startswith('/servers/detail'):
            self._server_pages += 1
            first = self._server_pages == 1
            return {'servers': [SERVER] if first else []}
        if url.endswith('/diagnostics'):
            return {'nic_details': [{'mac_address': '52:54:00:00:00:00'}]}
        if url.startswith('/servers/'):
            return {'server': SERVER}
        if url.startswith('/os-server-groups?'):
            self._group_pages += 1
            first = self._group_pages == 1
            return {'server_groups': [GROUP] if first else []}
        if url.startswith('/os-server-groups/'):
            return {'server_group': GROUP}
        if url.startswith('/os-aggregates'):
            return {'aggregates': [AGGREGATE]}
        if url.startswith('/os-hypervisors'):
            return {'hypervisors': [HYPERVISOR]}
        if url.startswith('/os-services'):
            return {'services': [{'host': 'dark', 'status': 'UNKNOWN'}]}
        if url.endswith('/inventories'):
            return {'inventories': INVENTORIES}
        if url.startswith('/resource_providers'):
            name = {'uuid': 'u', 'name': 'node:vhpc:br0:eth0'}
            return {'resource_providers': [name]}
        allocations = {
            'r': {'resources': {'VCPU': 2, 'MEMORY_MB': 64}},
            'u': {'resources': {model.UPLINK: 1}},
        }
        return {
            **PLACEMENT,
            'allocation_requests': [{'allocations': allocations}],
        }


def placement_answer(rng: random.Random) -> None:
    """Parse Placement's answer to the bulk read."""
    body: Any = damage.document(rng, PLACEMENT)
    with contextlib.suppress(
        AttributeError, KeyError, OverflowError, TypeError, ValueError
    ):
        snapshot.parse(body, {})


def memberships(rng: random.Random) -> None:
    """Read a server's virtual cluster from Nova's answer."""
    with contextlib.suppress(
        AttributeError, LookupError, TypeError, ValueError
    ):
        member = nova_servers.read_server(damage.document(rng, SERVER))
        if member is not None:
            nova_servers.clusters([member], frozenset({'deleted'}))


def explained_cloud(rng: random.Random) -> None:
    """Explain where a cloud would place a member of a server group."""
    connection = _Cloud(rng)
    with contextlib.suppress(openstack.CloudError, RequestError):
        request = cloud.look_up(
            connection, ExplainRequest(FLAVOR, group_name='g')
        )
        hosts = cloud.hosts(connection, request)
        explain.explain(request.question(hosts, now_s=1e9))


def simulated_cloud(rng: random.Random) -> None:
    """Read a cloud as an inventory to be simulated."""
    with contextlib.suppress(openstack.CloudError, ValueError):
        document = cloud_inventory.read(_Cloud(rng))
        inventory.read(document, None)


def vendordata(rng: random.Random) -> None:
    """Answer a request of Nova for vendordata: always by HTTP."""
    request = {'project-id': 'p', 'instance-id': SERVER_ID}
    body = json.dumps(request)
    if rng.random() < 0.5:
        body = damage.encoded(rng, request)
    data = body.encode(errors='surrogatepass')
    headers = {**HEADERS, 'CONTENT_LENGTH': str(len(data))}
    for name in headers:
        if rng.random() < 0.1:
            headers[name] = str(damage.value(rng))
    source = nova.NovaClusterSource(_Cloud(rng), b'secret')
    answers = shared_answers.SharedAnswers(source, ttl_s=5.0)
    roles = rng.choice((None, {'service'}))
    statuses: list[str] = []
    answer = b''.join(
        wsgi.Application(answers, roles)(
            {**headers, 'wsgi.input': io.BytesIO(data)},
            lambda status, fields: statuses.append(status),
        )
    )
    (status,) = statuses
    if not status.startswith(('200 ', '400 ', '403 ', '405 ', '503 ')):
        raise AssertionError(f'answered {status}')
    json.loads(answer, parse_constant=_no_json)


def _no_json(name: str) -> None:
    raise AssertionError(f'{name} is no JSON')
