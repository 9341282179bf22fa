# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The role of compute hosts, played in the machine itself."""

import json
import os
import pathlib
import shutil
from typing import Any

from nova_vhpc_lab.hostvm import machine

PLACE = pathlib.Path('/var/lib/hostvm')

HOOK = pathlib.Path('/etc/libvirt/hooks/qemu.d/nova-vhpc')


def play(playbook: str) -> str:
    """Run a playbook of deploy/ansible; return what Ansible printed.

    :param playbook: name of its file.
    :raises AssertionError: it failed.
    """
    (wheel,) = (PLACE / 'wheels').glob('*.whl')
    variables = {
        'ansible_connection': 'local',
        'ansible_become': False,
        'ansible_pipelining': True,
        'ansible_python_interpreter': '/usr/bin/python3',
        'nova_vhpc_agent_state': 'enabled',
        'nova_vhpc_agent_package': f'{wheel}[agent]',
        # The role's environment has all else in the image.
        'nova_vhpc_agent_pip_environment': {'PIP_NO_INDEX': '1'},
        'nova_vhpc_agent_config': machine.config(slice_policy='fixed'),
    }
    inventory = PLACE / 'inventory.json'
    hosts: dict[str, Any] = {
        'vhpc_computes': {'hosts': {'hostvm': None}, 'vars': variables}
    }
    inventory.write_text(json.dumps(hosts))
    os.environ.update(
        ANSIBLE_CONFIG=str(PLACE / 'deploy/ansible.cfg'),
        ANSIBLE_HOME=str(PLACE / 'ansible-home'),
        ANSIBLE_NOCOLOR='1',
        # The machine's console shows how far it is.
        ANSIBLE_LOG_PATH='/dev/ttyS0',
    )
    return machine.run(
        str(PLACE / 'ansible/bin/ansible-playbook'),
        f'--inventory={inventory}',
        str(PLACE / 'deploy' / playbook),
    )


def install() -> None:
    """Install and start the agent, with the patience of an emulated CPU."""
    drop_in = pathlib.Path('/etc/systemd/system', f'{machine.UNIT}.d')
    drop_in.mkdir()
    shutil.copy(PLACE / 'emulated.conf', drop_in)
    play('site.yml')
    text = HOOK.read_text()
    assert 'timeout -k 5 30 ' in text, text
    HOOK.write_text(text.replace('timeout -k 5 30 ', 'timeout -k 5 900 '))
