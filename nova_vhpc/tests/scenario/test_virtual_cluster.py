# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Smoke test on a running cloud: what a gate job runs after devstack.

Boots a virtual cluster of two members through the public APIs and looks at
the uplink claims in Placement, at where the members went, and at cputune on
this host. Needs:

- ``OS_CLOUD`` (or any other openstacksdk environment) with admin rights,
- ``VHPC_SCENARIO_FLAVOR``, a flavor with ``vhpc:`` extra specs and a claim,
- ``VHPC_SCENARIO_IMAGE``, name or id of an image,
- optionally ``VHPC_SCENARIO_NETWORK``, name or id of the network that the
  members get a port on (without it they have no NIC),
- optionally ``VHPC_SCENARIO_POLICY``, the server group's policy: with
  ``anti-affinity`` the members must be on different hosts,
- optionally ``VHPC_SCENARIO_LIBVIRT_URI``: cputune is looked at there,
- optionally ``VHPC_SCENARIO_CTL_CONF``, the agents' configuration: agents of
  all the members' hosts are asked over the message bus, and must hear of
  each other when there are several,
- optionally ``VHPC_SCENARIO_METADATA_URL``, of nova's metadata service, and
  ``VHPC_SCENARIO_METADATA_CONF``, its nova.conf: a member is told of its
  cluster there.

In CI (the variable ``CI``) libvirt's URI and the agents' configuration must
be given.
"""

import configparser
import contextlib
import hashlib
import hmac
import json
import os
import subprocess
import sys
import time
import unittest
import uuid

import openstack
import requests
from openstack import exceptions
from oslo_utils import uuidutils

from nova_vhpc.flavor import extra_specs
from nova_vhpc.topology import model

MEMBERS = 2
BOOT_TIMEOUT_S = 300
HEAR_TIMEOUT_S = 60
TUNE_TIMEOUT_S = BOOT_TIMEOUT_S

NEEDED_TO_WRITE = ('journal', 'libvirt', 'writes')
"""Parts of an agent's health without which it writes to no server."""


class VirtualClusterScenario(unittest.TestCase):
    """One cluster for all checks; it is removed whatever happens."""

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        missing = [
            name
            for name in ('VHPC_SCENARIO_FLAVOR', 'VHPC_SCENARIO_IMAGE')
            if not os.environ.get(name)
        ]
        if missing:
            raise RuntimeError(f'set {" and ".join(missing)} (see module)')
        cls.cloud = openstack.connect()
        cls.compute = cls.cloud.compute
        cls.compute.default_microversion = '2.100'
        cls.flavor = cls.compute.find_flavor(
            os.environ['VHPC_SCENARIO_FLAVOR'],
            ignore_missing=False,
            get_extra_specs=True,
        )
        name = f'vhpc-scenario-{uuid.uuid4().hex[:8]}'
        cls.group = cls.compute.create_server_group(
            name=name,
            policy=os.environ.get('VHPC_SCENARIO_POLICY', 'soft-affinity'),
        )
        cls.addClassCleanup(
            cls.compute.delete_server_group, cls.group, ignore_missing=True
        )
        body = {
            'name': name,
            'flavorRef': cls.flavor.id,
            'imageRef': cls._image(),
            'networks': cls._networks(),
            'min_count': MEMBERS,
            'max_count': MEMBERS,
        }
        cls.addClassCleanup(cls._delete_members)
        response = cls.compute.post(
            '/servers',
            json={
                'server': body,
                'os:scheduler_hints': {'group': cls.group.id},
            },
        )
        if response.status_code != 202:
            raise RuntimeError(f'boot refused: {response.text}')
        cls.members = cls._wait_active()

    @classmethod
    def _image(cls) -> str:
        named = os.environ['VHPC_SCENARIO_IMAGE']
        if uuidutils.is_uuid_like(named):
            return named
        return cls.cloud.image.find_image(named, ignore_missing=False).id

    @classmethod
    def _networks(cls) -> list | str:
        named = os.environ.get('VHPC_SCENARIO_NETWORK')
        if not named:
            return 'none'
        network = cls.cloud.network.find_network(named, ignore_missing=False)
        return [{'uuid': network.id}]

    @classmethod
    def _group_servers(cls) -> list:
        group = cls.compute.get_server_group(cls.group)
        servers = []
        for member in group.member_ids:
            # A member may go after the group was read.
            with contextlib.suppress(exceptions.NotFoundException):
                servers.append(cls.compute.get_server(member))
        return servers

    @classmethod
    def _delete_members(cls) -> None:
        for server in cls._group_servers():
            cls.compute.delete_server(server, ignore_missing=True)
        deadline = time.monotonic() + BOOT_TIMEOUT_S
        while cls._group_servers() and time.monotonic() < deadline:
            time.sleep(1)

    @classmethod
    def _wait_active(cls) -> list:
        deadline = time.monotonic() + BOOT_TIMEOUT_S
        while True:
            servers = cls._group_servers()
            statuses = [server.status for server in servers]
            if statuses == ['ACTIVE'] * MEMBERS:
                return servers
            if 'ERROR' in statuses or time.monotonic() > deadline:
                faults = [server.fault for server in servers]
                raise RuntimeError(f'members are {statuses}: {faults}')
            time.sleep(1)

    def test_each_member_claims_its_uplink(self) -> None:
        wanted = sum(
            int(value)
            for key, value in self.flavor.extra_specs.items()
            if key.startswith('resources') and key.endswith(f':{model.UPLINK}')
        )
        self.assertGreater(wanted, 0, 'the flavor claims no uplink')
        for server in self.members:
            claimed = sum(
                provider['resources'].get(model.UPLINK, 0)
                for provider in self._allocations(server).values()
            )
            self.assertEqual(wanted, claimed, server.id)

    def test_members_are_where_the_claims_are(self) -> None:
        for server in self.members:
            roots = {
                self._provider(rp)['root_provider_uuid']
                for rp in self._allocations(server)
            }
            self.assertEqual(1, len(roots), server.id)
            root = self._provider(roots.pop())
            self.assertEqual(server.hypervisor_hostname, root['name'])
            traits = self._placement(
                f'/resource_providers/{root["uuid"]}/traits'
            )['traits']
            self.assertIn(model.TRAIT_HOST, traits)

    def test_a_wrong_key_is_refused_and_named(self) -> None:
        response = self.compute.post(
            f'/flavors/{self.flavor.id}/os-extra_specs',
            json={'extra_specs': {'vhpc:wrokload': 'parallel'}},
        )
        self.assertEqual(400, response.status_code)
        self.assertIn('vhpc:wrokload', response.text)

    def test_the_agent_manages_the_members_of_this_host(self) -> None:
        uri = self._given('VHPC_SCENARIO_LIBVIRT_URI')
        if not uri:
            return
        specs = extra_specs.parse(self.flavor.extra_specs)
        self.assertEqual('parallel', specs.workload, 'unsuitable flavor')
        import libvirt

        connection = libvirt.openReadOnly(uri)
        self.addCleanup(connection.close)
        here = [
            connection.lookupByUUIDString(server.id)
            for server in self.members
            if server.id
            in {d.UUIDString() for d in connection.listAllDomains()}
        ]
        self.assertNotEqual([], here, 'no member runs on this host')
        conf = self._given('VHPC_SCENARIO_CTL_CONF')
        if not conf:
            return
        self._wait_managed(conf, {domain.UUIDString() for domain in here})

    def test_the_agents_of_all_members_hear_of_each_other(self) -> None:
        conf = self._given('VHPC_SCENARIO_CTL_CONF')
        if not conf:
            return
        hosts = sorted({server.compute_host for server in self.members})
        if self.group.policy == 'anti-affinity':
            self.assertEqual(MEMBERS, len(hosts), 'nothing to hear')
        deadline = time.monotonic() + HEAR_TIMEOUT_S
        while True:
            answers = self._ask_agents(conf, hosts)
            if self._all_heard(answers, hosts):
                return
            if time.monotonic() > deadline:
                self.fail(f'not all is heard: {answers}')
            time.sleep(1)

    def test_a_member_is_told_of_its_cluster(self) -> None:
        url = os.environ.get('VHPC_SCENARIO_METADATA_URL')
        if not url:
            return
        ids = {server.id for server in self.members}
        deadline = time.monotonic() + HEAR_TIMEOUT_S
        for server in self.members:
            # Nova keeps what a member was told before all members ran.
            while True:
                told = self._vendordata(url, server)
                # Nova leaves an empty answer if the service refuses.
                self.assertTrue(told.get('vhpc'), told)
                if told['vhpc']['cluster']['complete']:
                    break
                if time.monotonic() > deadline:
                    self.fail(f'a member is missing: {told}')
                time.sleep(1)
            self.assertEqual(ids, {m['id'] for m in told['vhpc']['members']})

    def _vendordata(self, url: str, server: 'object') -> dict:
        """Ask nova's metadata service as Neutron's metadata agent does."""
        conf = configparser.ConfigParser(strict=False, interpolation=None)
        conf.read(os.environ['VHPC_SCENARIO_METADATA_CONF'])
        secret = conf.get(
            'neutron', 'metadata_proxy_shared_secret', fallback=''
        )
        signature = hmac.new(
            secret.encode(), server.id.encode(), hashlib.sha256
        )
        response = requests.get(
            f'{url}/openstack/latest/vendor_data2.json',
            headers={
                'X-Instance-ID': server.id,
                'X-Tenant-ID': server.project_id,
                'X-Forwarded-For': '127.0.0.1',
                'X-Instance-ID-Signature': signature.hexdigest(),
            },
            timeout=BOOT_TIMEOUT_S,
        )
        self.assertEqual(200, response.status_code, response.text)
        return response.json()

    def _ask_agents(self, conf: str, hosts: list[str]) -> dict:
        command = [sys.executable, '-m', 'nova_vhpc.cli.ctl', '--json']
        command += ['--config-file', conf, 'status']
        for host in hosts:
            command += ['--host', host]
        result = subprocess.run(
            command, capture_output=True, text=True, check=False
        )
        self.assertEqual(0, result.returncode, result.stderr)
        return json.loads(result.stdout)

    def _all_heard(self, answers: dict, hosts: list[str]) -> bool:
        """Every member is known to belong here, every other host is heard."""
        followed = {
            vm['uuid']
            for answer in answers.values()
            for vm in answer['vms']
            if vm['cluster'] == self.group.id
        }
        return {server.id for server in self.members} <= followed and all(
            len(self._heard(answer['peers'])) >= len(hosts) - 1
            for answer in answers.values()
        )

    def _heard(self, peers: dict) -> set[str]:
        """Return the hosts that an agent hears.

        Phases are said when they change, slots all the time.
        """
        return {
            host
            for exchange in (peers, peers.get('slots') or {})
            for host in (exchange.get('clusters') or {})
            .get(self.group.id, {})
            .get('hosts', {})
        }

    def _given(self, name: str) -> str | None:
        """A variable that may be left out, but not in CI."""
        if 'CI' in os.environ:
            self.assertIn(name, os.environ)
        return os.environ.get(name)

    def _wait_managed(self, conf: str, uuids: set) -> None:
        """Wait until agents manage these members, and may write to them.

        A member that computes nothing needs no gang windows, so nothing needs
        to be written to it.
        """
        hosts = sorted({server.compute_host for server in self.members})
        deadline = time.monotonic() + TUNE_TIMEOUT_S
        while True:
            answers = self._ask_agents(conf, hosts)
            managed = {
                vm['uuid']
                for answer in answers.values()
                for vm in answer['vms']
                if vm['workload'] == 'parallel'
                and not vm['quarantined']
                and not vm['external']
            }
            unable = {
                host: part['what']
                for host, answer in answers.items()
                for name, part in answer['health']['parts'].items()
                if name in NEEDED_TO_WRITE and not part['healthy']
            }
            if uuids <= managed and not unable:
                return
            if time.monotonic() > deadline:
                self.fail(
                    f'not managed: {sorted(uuids - managed)}; cannot write: '
                    f'{unable}'
                )
            time.sleep(1)

    def _allocations(self, server: 'object') -> dict:
        return self._placement(f'/allocations/{server.id}')['allocations']

    def _provider(self, provider: str) -> dict:
        return self._placement(f'/resource_providers/{provider}')

    def _placement(self, url: str) -> dict:
        response = self.cloud.placement.get(
            url, headers={'OpenStack-API-Version': 'placement 1.36'}
        )
        self.assertEqual(200, response.status_code, response.text)
        return response.json()
