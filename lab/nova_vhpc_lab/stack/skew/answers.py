# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Ask ``openstack vhpc`` and ``nova-vhpc-explain`` about the cluster."""

import contextlib
import io
import json

from openstack import connection

from nova_vhpc.cli import explain
from nova_vhpc.tests import osc_shell
from nova_vhpc_lab.stack.demo import state


def run(demo: state.Demo) -> None:
    """Have the agents control the cluster; ask about it and its hosts.

    :raises DemoError: if an answer is wrong.
    """
    demo.show.heading('openstack vhpc and nova-vhpc-explain answer')
    demo.stop_agents()
    demo.start_agents()
    with demo.show.waiting('writes to all members and their ports'):
        demo.wait_for_writes()
    cloud = connection.Connection(
        session=demo.stage.admin.session, compute_api_version='2.1'
    )
    bus = ('--config-file', str(demo.stage.agent_conf(demo.stage.hosts[0])))
    names = [each.name for each in demo.stage.hosts]
    for argv, wanted in (
        (
            ('cluster', 'list', '--all-projects', '--long', *bus),
            ['soft-affinity'],
        ),
        (('host', 'list', *bus), names),
        *((('host', 'show', name, *bus), [name]) for name in names),
    ):
        status, out, err = osc_shell.run(cloud, *argv)
        demo.show.say(f'openstack vhpc {" ".join(argv[:3])}')
        demo.show.console.print(out, markup=False, soft_wrap=True)
        if status or not all(name in out for name in wanted):
            raise state.DemoError(f'exit status {status}: {err}')
    _explain(demo, cloud)


def _explain(demo: state.Demo, cloud: connection.Connection) -> None:
    """Ask for a place for one more member: one uplink is free."""
    out = io.StringIO()
    conf = demo.stage.cloud.config.etc / 'nova' / 'nova.conf'
    with contextlib.redirect_stdout(out):
        status = explain.main(
            ['--flavor', 'vhpc', '--config-file', str(conf), '--json'], cloud
        )
    if status:
        raise state.DemoError(f'nova-vhpc-explain: exit status {status}')
    answer = json.loads(out.getvalue())
    demo.show.table(
        'nova-vhpc-explain --flavor vhpc',
        ('host', 'reason'),
        [(host['name'], host['reason'] or 'fits') for host in answer['hosts']],
    )
