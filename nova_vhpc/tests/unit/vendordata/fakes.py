# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Clusters that the vendordata tests share."""

import dataclasses
import ipaddress
import json

from nova_vhpc.vendordata import answer, model, opaque_ids

PROJECT = 'f7ac731cc11f40efbc03a9f9e1d1d21f'
SECRET = b'a secret of sixteen or more'
IDS = opaque_ids.OpaqueIds(PROJECT, SECRET)
GROUP = '30000000-0000-4000-8000-000000000000'


def uuid(number):
    """A fixed server uuid."""
    return f'10000000-0000-4000-8000-{number:012}'


def server(number, **specs):
    """A server of Nova's detail view, whose flavor has extra specs."""
    return {
        'id': uuid(number),
        'tenant_id': PROJECT,
        'name': f'member-{number}',
        'status': 'ACTIVE',
        'server_groups': [GROUP],
        'flavor': {
            'vcpus': 8,
            'extra_specs': {f'vhpc:{k}': v for k, v in specs.items()},
        },
    }


def member(number, host, switch=None, rack=None, nics=2):
    """A member with NIC i in 10.i.0.0/24."""
    return model.Member(
        uuid(number),
        f'member-{number}',
        2,
        host,
        switch,
        rack,
        tuple(
            model.Nic(
                f'fa:16:3e:00:{nic:02}:{number:02}',
                (ipaddress.ip_address(f'10.{nic}.0.{number}'),),
            )
            for nic in range(nics)
        ),
    )


def cluster(members, network='shared-separate', **kwargs):
    """A cluster in rank order, whose members are all of one flavor."""
    return mixed(
        [
            dataclasses.replace(one, network=network, **kwargs)
            for one in members
        ]
    )


def mixed(members):
    """A cluster in rank order, of members as they are."""
    return model.Cluster(GROUP, 'weather', model.ranked(members))


def answered(cluster, uuid, live_members=None):
    """What a member of a cluster is told."""
    return json.loads(answer.Answers(cluster, live_members).of(uuid))


def read(source, uuid, project=PROJECT):
    """The cluster of a server, by a NovaClusterSource."""
    return source.cluster(source.group_of(uuid, project), project)
