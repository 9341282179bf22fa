# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Boot a virtual cluster and a server without ``vhpc:`` specs."""

import re

from nova_vhpc.topology import model
from nova_vhpc_lab.stack import scenario
from nova_vhpc_lab.stack.demo import state


def run(demo: state.Demo) -> None:
    """Boot a virtual cluster and a server without ``vhpc:`` specs."""
    demo.show.heading(
        '3. A virtual cluster of three: one group, one multi-create'
    )
    tenant, admin = demo.stage.tenant, demo.stage.admin
    group = tenant.make_group('cluster', 'soft-affinity')
    demo.logs = [demo.stage.cloud.daemon('nova-scheduler')]
    with demo.show.waiting('the members and a server without vhpc: specs'):
        members = demo.stage.boot_cluster('member', group)
        others = tenant.boot('plain', 'plain', demo.stage.images['hog'])
        demo.take_servers(members, others)
        tenant.wait_active(demo.names)
    providers = {p['uuid']: p['name'] for p in admin.providers()}
    rows, uplinks = [], []
    for uuid in demo.names:
        server = admin.server(uuid)
        host = server['OS-EXT-SRV-ATTR:host']
        allocations = admin.allocations(uuid)
        claims = [
            providers[p] for p, r in allocations.items() if model.UPLINK in r
        ]
        uplinks += claims
        rows.append(
            (
                server['name'],
                server['status'],
                host,
                '\n'.join(
                    f'{providers[p]}: '
                    + ' '.join(f'{k}={v}' for k, v in r.items())
                    for p, r in allocations.items()
                ),
            )
        )
    demo.show.table(
        'Host and allocations of each server',
        ('server', 'status', 'host', 'allocations'),
        rows,
    )
    _show_reasons(demo)
    if not len(set(uplinks)) == len(uplinks) == len(demo.members):
        raise state.DemoError(f'not one uplink per member: {uplinks}')
    _pair(demo)


def _pair(demo: state.Demo) -> None:
    """Choose two members of one host, and two of two hosts."""
    by_host: dict[str, list[str]] = {}
    for uuid in demo.members:
        by_host.setdefault(demo.host_of(uuid).name, []).append(uuid)
    few, many = sorted(by_host.values(), key=len)
    demo.together = (many[0], many[1])
    # The uplinks of these two are not the default ones, if possible.
    demo.apart = (
        max(many, key=demo.stage.claimed_rail),
        few[0],
    )


def _show_reasons(demo: state.Demo) -> None:
    text = demo.stage.cloud.daemon('nova-scheduler').tail(2000)
    rejected = sorted(
        set(
            re.findall(
                r'Host (\S+) cannot take a member of this virtual '
                r'cluster: (.*)',
                text,
            )
        )
    )
    plans = re.findall(r'Plan for \d+ member\(s\): .*', text)
    demo.show.table(
        'Hosts that the filter rejected', ('host', 'reason'), rejected
    )
    for plan in plans[:1]:
        demo.show.say(f'the planner: {plan}')
    if scenario.SLOW_HOST not in {host for host, _ in rejected}:
        raise state.DemoError(f'{scenario.SLOW_HOST} was not rejected')
