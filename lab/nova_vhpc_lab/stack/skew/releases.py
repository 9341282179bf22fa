# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Show which releases run, and what the upgrade checks say of them."""

import os
import subprocess
from pathlib import Path

from nova_vhpc_lab.stack import environment
from nova_vhpc_lab.stack.demo import state

PACKAGES = (
    'nova',
    'oslo.messaging',
    'oslo.versionedobjects',
    'libvirt-python',
)

_WARNINGS = 1
"""Exit status of an upgrade check that warns."""


def run(demo: state.Demo) -> None:
    """Show the releases, and run Nova's upgrade check.

    :raises DemoError: if both agents are of the same release, or the check
        fails.
    """
    demo.show.heading('Releases, and what the upgrade checks say')
    rows = [('control plane', *environment.HERE.versions(*PACKAGES), '')]
    for each in demo.stage.hosts:
        rows += [
            (
                f'nova-compute on {each.name}',
                *each.programs.versions(*PACKAGES),
                '',
            ),
            (
                f'agent on {each.name}',
                *each.programs.agent_versions(*PACKAGES),
                each.programs.tree or 'installed',
            ),
        ]
    demo.show.table('Packages', ('', *PACKAGES, 'nova-vhpc'), rows)
    if len({row[1:] for row in rows if row[-1]}) == 1:
        raise state.DemoError('both agents are of the same release')
    _check(demo, 'controller', environment.HERE, 'nova-status', _conf(demo))


def check_ours(demo: state.Demo) -> None:
    """Run ``nova-vhpc-status upgrade check`` in each host's environment.

    Both configuration files are given, as on a host with a scheduler and an
    agent: nova and libvirt are in both environments.

    :raises DemoError: if a check fails.
    """
    demo.show.heading('nova-vhpc-status upgrade check')
    for each in demo.stage.hosts:
        _check(
            demo,
            each.name,
            each.programs,
            'nova-vhpc-status',
            _conf(demo),
            demo.stage.agent_conf(each),
        )


def _conf(demo: state.Demo) -> Path:
    return demo.stage.cloud.config.etc / 'nova' / 'nova.conf'


def _check(
    demo: state.Demo,
    place: str,
    where: environment.Environment,
    program: str,
    *confs: Path,
) -> None:
    done = subprocess.run(
        (
            where.program(program),
            *(f'--config-file={path}' for path in confs),
            'upgrade',
            'check',
        ),
        check=False,
        capture_output=True,
        text=True,
        env={
            **os.environ,
            'OS_NOVA_DISABLE_EVENTLET_PATCHING': 'true',
            **where.variables,
        },
    )
    demo.show.say(f'{program} on {place}: exit status {done.returncode}')
    demo.show.console.print(done.stdout, markup=False)
    if done.returncode > _WARNINGS:
        raise state.DemoError(f'{program} on {place}: {done.stderr}')
