# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Keep the cloud up for a person to look around."""

import json
import os
import signal
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from nova_vhpc_lab.stack import config, identity
from nova_vhpc_lab.stack.demo import state

USERS = ('tenant', 'admin')

_HANG_UP_S = 5.0


def run(demo: state.Demo) -> None:
    """Run a shell in which ``openstack`` knows the cloud; wait for its end.

    A signal ends it, too, and is no failure.
    """
    demo.show.heading('A shell in this cloud')
    demo.stop_agents()
    demo.start_agents()
    with demo.show.waiting('writes to all members and their ports'):
        demo.wait_for_writes()
    cloud = demo.stage.cloud
    root, programs = cloud.root, cloud.program('nova-vhpc-top').parent
    host = demo.stage.hosts[0]
    clouds = write_clouds(root / 'clouds.yaml', cloud.config)
    demo.show.say('everything runs; try:')
    for line in (
        'openstack vhpc cluster list',
        'openstack --os-cloud admin vhpc cluster list --all-projects --long',
        'openstack --os-cloud admin server list --all-projects --long',
        f'nova-vhpc-ctl status --host {host.name}',
        f"virsh -c '{host.uri}' list",
        f'nova-vhpc-top --run-path {host.run_path}',
        f'ovs-vsctl --db={cloud.switch(host).socket} show',
        f'ls {root}/etc {root}/log',
    ):
        demo.show.say(f'  {line}')
    demo.show.say(
        f'Users, as clouds in {clouds}: {", ".join(USERS)}. "exit" or Ctrl-D '
        'ends the shell and everything in this cloud; SIGTERM to process '
        f'{os.getpid()} does so, too.'
    )
    demo.show.console.file.flush()
    wait_for_shell(
        {
            **os.environ,
            'PATH': f'{programs}{os.pathsep}{os.environ["PATH"]}',
            'OS_CLIENT_CONFIG_FILE': str(clouds),
            'OS_CLOUD': USERS[0],
            # oslo.config reads options from the environment, too. By this
            # one, programs that call the agents find the message bus.
            'OS_DEFAULT__TRANSPORT_URL': cloud.config.transport_url,
            'PS1': '(nova-vhpc demo) \\w \\$ ',
        }
    )


def write_clouds(
    path: Path, configuration: config.Config, users: Iterable[str] = USERS
) -> Path:
    """Write clouds.yaml, with a cloud for each user, named like the user."""
    clouds = {}
    for user in users:
        credentials = configuration.credentials(user)
        clouds[user] = {
            'auth_type': credentials.pop('auth_type'),
            'identity_api_version': '3',
            'region_name': identity.REGION,
            'auth': credentials,
        }
    path.touch(0o600)
    # JSON is YAML, too.
    path.write_text(json.dumps({'clouds': clouds}, indent=2) + '\n')
    return path


def wait_for_shell(environment: Mapping[str, str]) -> None:
    """Run a shell until its end, or end it at SIGINT, SIGTERM or SIGHUP.

    What it leaves in the background is for :func:`.runner.run` to end.
    """
    # On a terminal, bash puts itself into a process group of its own, so
    # Ctrl-C there is for what was typed, and does not end the demo.
    shell = subprocess.Popen(
        ('bash', '--noprofile', '--norc'), env=environment
    )
    try:
        shell.wait()
    except KeyboardInterrupt:
        # An interactive bash ignores SIGTERM.
        shell.send_signal(signal.SIGHUP)
        try:
            shell.wait(_HANG_UP_S)
        except subprocess.TimeoutExpired:
            shell.kill()
            shell.wait()
