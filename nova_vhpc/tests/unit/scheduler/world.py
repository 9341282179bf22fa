# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Real host states and requests, with a Placement that is a dictionary."""

import copy

import fixtures
from nova import conf as nova_conf
from nova import objects
from oslotest import base

from nova_vhpc.conf import scheduler as scheduler_conf
from nova_vhpc.scheduler import filters, weights
from nova_vhpc.scheduler.sources import server_groups, uplink_cache
from nova_vhpc.topology import model
from nova_vhpc_lab.bench.scheduler import world

objects.register_all()

CONF = nova_conf.CONF


class WorldTestCase(base.BaseTestCase):
    """A filter, a weigher and hosts with four uplinks for one guest each.

    The hosts are those of the scheduler bench.
    """

    hosts = 4

    def setUp(self):
        super().setUp()
        # Nova reads its global options; tests must not see /etc/nova.
        CONF([], default_config_files=[], project='nova')
        scheduler_conf.register_opts(CONF)
        self.flags(topology_max_age=0)
        self.filter = filters.VirtualClusterFilter()
        self.weigher = weights.VirtualClusterWeigher()
        self.body = world.bulk_body(self.hosts)
        self.names = world.names(self.hosts)
        self.reads = []
        self.cache = uplink_cache.UplinkCache(CONF, self.get)
        uplink_cache.install(self.cache)
        self.addCleanup(uplink_cache.reset)
        self.states = world.World(self.hosts).states
        # What Nova's databases have of a server group; None: no answer.
        self.instance_locations = None
        self.useFixture(
            fixtures.MonkeyPatch(
                'nova_vhpc.scheduler.sources.nova_db.locate',
                lambda uuids: self.instance_locations,
            )
        )
        # Server groups by server.
        self.group_of = {}
        server_groups.install(
            server_groups.ServerGroups(lambda uuids: self.group_of)
        )
        self.addCleanup(server_groups.reset)
        # And of a member that is moved.
        self.move_source = None
        self.useFixture(
            fixtures.MonkeyPatch(
                'nova_vhpc.scheduler.sources.nova_db.move_source',
                lambda spec: self.move_source,
            )
        )
        self.moved_networks = None
        self.useFixture(
            fixtures.MonkeyPatch(
                'nova_vhpc.scheduler.sources.nova_db.network_metadata',
                lambda spec: self.moved_networks,
            )
        )
        # Hosts whose nova-compute is down or disabled.
        self.down = set()
        self.useFixture(
            fixtures.MonkeyPatch(
                'nova_vhpc.scheduler.sources.nova_db.must_leave',
                lambda cell, host: host in self.down,
            )
        )
        # Where members land that are being moved.
        self.move_destinations = {}
        self.useFixture(
            fixtures.MonkeyPatch(
                'nova_vhpc.scheduler.sources.nova_db.move_destinations',
                lambda cell, source: self.move_destinations,
            )
        )

    def flags(self, **options):
        """Override options of ``[vhpc_scheduler]`` for this test."""
        for name, value in options.items():
            CONF.set_override(name, value, 'vhpc_scheduler')
            self.addCleanup(CONF.clear_override, name, 'vhpc_scheduler')

    def get(self, path, version):
        """What Placement answers."""
        self.reads.append(path)
        if path.startswith('/allocation_candidates'):
            return copy.deepcopy(self.body)
        return {'resource_providers': self.names}

    def summary(self, node, port):
        """What Placement has of one uplink; may be changed."""
        uuid = model.provider_uuid(node, f'br{port}', f'eth{port}')
        return self.body['provider_summaries'][uuid]

    def request(self, members=1, policy='soft-affinity', **specs):
        """A request; ``vhpc_network='shared'`` for ``vhpc:network``."""
        return world.request(
            members,
            policy,
            {
                **world.VHPC_SPECS,
                **{key.replace('_', ':', 1): specs[key] for key in specs},
            },
        )

    def passing(self, spec, states=None):
        """Names of the hosts that pass, each once, in order."""
        found = self.filter.filter_all(states or self.states, spec)
        return list(dict.fromkeys(state.host for state in found))

    def place(
        self,
        spec,
        claims=None,
        uuids=None,
        before=None,
        after=lambda state: True,
    ):
        """Place all members as the scheduler manager does.

        :param uuids: of the members; by default all of the server group.
        :param claims: called with a candidate, says whether the claim
            succeeds.
        :param before: filters that Nova asks before ours, as a function of
            a host state.
        :param after: the same of those that Nova asks after ours.
        :returns: pairs of host and uplink, None where no host was found.
        """
        placed = []
        states = list(self.states)
        for uuid in uuids or list(spec.instance_group.members):
            spec.instance_uuid = uuid
            if before is not None:
                states = [state for state in states if before(state)]
            states = list(filter(after, self.filter.filter_all(states, spec)))
            weighed = [weights_of(state) for state in states]
            raw = self.weigher.weigh_objects(weighed, spec)
            order = sorted(range(len(states)), key=lambda at: -raw[at])
            states = [states[at] for at in order]
            for state in states:
                if not state.allocation_candidates:
                    continue
                candidate = state.allocation_candidates[0]
                if claims is None or claims(candidate):
                    break
            else:
                placed.append(None)
                continue
            state.consume_from_request(spec)
            spec.instance_group.hosts.append(state.host)
            state.instances[uuid] = None
            (uplink,) = candidate['mappings']['_uplink']
            placed.append((state.host, uplink))
        return placed


class weights_of:
    """Nova's WeighedHost, as far as weighers look at it."""

    def __init__(self, obj):
        self.obj = obj
