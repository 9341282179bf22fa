# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Variables of the Ansible roles, given as operators give them.

Text stands for booleans, lists and mappings, as by ``-e`` or in an inventory
in INI format, and nothing for what a role's default is meant. Ansible checks
types of arguments, but converts nothing.
"""

import base64
import functools
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from typing import Any

import yaml
from oslo_config import cfg

from nova_vhpc.tests import base

ROLES = pathlib.Path(__file__).parents[4] / 'deploy/ansible/roles'

PACKAGES = ['python3-venv', 'python3-libvirt']
SERVICES = ['nova-scheduler.service', 'nova-api.service']
BRIDGES = ['br-a:separate', 'br-b:shared:slots=8']
CONFIG = {'vhpc_agent': {'cpu_shared_set': '2-31'}}
SPARE = {'vhpc_scheduler': {'spare_cpus': 1}}

MEANT: dict[str, dict[str, list[tuple[Any, Any]]]] = {
    'nova_vhpc_agent': {
        'hook': [
            *((v, True) for v in (True, 'true', 'True', 'yes', '1', 1)),
            *((v, False) for v in (False, 'false', 'no', 'off', '0', 0)),
        ],
        'state': [('enabled', 'enabled'), ('dry_run', 'dry_run')],
        'package': [('a.whl[agent]', 'a.whl[agent]')],
        'venv': [('/opt/a/', '/opt/a'), ('/opt/nova-vhpc', '/opt/nova-vhpc')],
        'withdraw_wait': [('360', 360), (0, 0), ('0', 0)],
        'pip_environment': [
            ({'PIP_NO_INDEX': '1'}, {'PIP_NO_INDEX': '1'}),
            ('{"PIP_NO_INDEX": "1"}', {'PIP_NO_INDEX': '1'}),
        ],
        'os_packages': [
            (PACKAGES, PACKAGES),
            (', '.join(PACKAGES), PACKAGES),
            (json.dumps(PACKAGES), PACKAGES),
            ('', []),
        ],
        'config': [
            (CONFIG, CONFIG),
            (json.dumps(CONFIG), CONFIG),
            ({**CONFIG, 'placement': None, 'vhpc_nova': ''}, CONFIG),
        ],
    },
    'nova_vhpc_scheduler': {
        'state': [('absent', 'absent'), ('present', 'present')],
        'package': [('a.whl', 'a.whl')],
        'venv': [
            *(('/opt/nova', '/opt/nova'), ('', ''), (' ', '')),
            *((None, ''), ('none', ''), ('None', '')),
        ],
        'nova_conf': [('/etc/n.conf', '/etc/n.conf')],
        'conf_dir': [('/etc/n.d', '/etc/n.d')],
        'pip_environment': [('{"A": "b"}', {'A': 'b'}), ({}, {})],
        'services': [
            (SERVICES, SERVICES),
            (','.join(SERVICES), SERVICES),
            (json.dumps(SERVICES), SERVICES),
            (SERVICES[0], SERVICES[:1]),
        ],
        'config': [
            (SPARE, SPARE),
            (json.dumps(SPARE), SPARE),
            ({**SPARE, 'vhpc_topology': None}, SPARE),
        ],
    },
}
"""Values of each variable of each role, and what they mean."""

REFUSED = [
    *({'config': 'a = b'}, {'config': {'vhpc_agent': 'x'}}),
    *({'venv': '~/venv'}, {'venv': '/'}),
    *({'hook': 'flase'}, {'withdraw_wait': 'long'}, {'state': 'Absent'}),
]
"""Variables of an agent that cannot be meant so."""

DRY = {'dry_run': ['True']}
AGENT_FILES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {'config': {'vhpc_topology': {'bridges': BRIDGES}}},
        {'vhpc_topology': {'bridges': [','.join(BRIDGES)]}, 'vhpc_agent': DRY},
    ),
    *(
        (
            {'config': {'vhpc_agent': {'status_socket_mode': mode}}},
            {'vhpc_agent': {**DRY, 'status_socket_mode': [text]}},
        )
        for mode, text in ((0o660, '0660'), (660, '660'), ('0660', '0660'))
    ),
    (
        {'config': {'vhpc_agent': {'host': None, 'dry_run': None}}},
        {'vhpc_agent': DRY},
    ),
    ({'config': {'vhpc_agent': None}}, {'vhpc_agent': DRY}),
    (
        {
            'state': 'enabled',
            'config': {'vhpc_topology': {'ovsdb_connection': ''}},
        },
        {
            'vhpc_agent': {'dry_run': ['False']},
            'vhpc_topology': {'ovsdb_connection': ['']},
        },
    ),
    (
        {'state': 'enabled', 'config': {'vhpc_agent': {'dry_run': 'yes'}}},
        {'vhpc_agent': DRY},
    ),
]
"""Variables of an agent, and the groups of the file that it gets."""

LISTS = {
    'available_filters': ['all'],
    'enabled_filters': ['A'],
    'weight_classes': ['W'],
}
OURS = {
    'available_filters': [
        'all',
        'nova_vhpc.scheduler.filters.VirtualClusterFilter',
    ],
    'enabled_filters': ['A,VirtualClusterFilter'],
    'weight_classes': ['W,nova_vhpc.scheduler.weights.VirtualClusterWeigher'],
}
SCHEDULER_FILES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {
            'config': {
                'vhpc_scheduler': {
                    'max_overcommit': {'openmp': 1.0, 'mpi': 2}
                },
                'pci': {'device_spec': ['{}', '[]']},
            }
        },
        {
            'filter_scheduler': OURS,
            'vhpc_scheduler': {'max_overcommit': ['mpi:2,openmp:1.0']},
            'pci': {'device_spec': ['{}', '[]']},
        },
    )
]


@functools.cache
def results(role: str) -> tuple[list[dict[str, Any] | None], ...]:
    """Return what a role makes of rows of MEANT, of files, and of REFUSED.

    :returns: variables and file of each host; None where it is refused.
    """
    columns = [
        [(name, value) for value, _ in rows]
        for name, rows in MEANT[role].items()
    ]
    first = [dict(column[0] for column in columns)]
    hosts = [
        # A column that has ended goes on with its first value.
        dict(map(lambda one, start: one or start, row, first[0].items()))
        for row in itertools.zip_longest(*columns)
    ]
    agent = role == 'nova_vhpc_agent'
    parts = [
        hosts,
        [one for one, _ in (AGENT_FILES if agent else SCHEDULER_FILES)],
        REFUSED if agent else [],
    ]
    found = iter(_play(role, [one for part in parts for one in part]))
    return tuple([next(found) for _ in part] for part in parts)


def _play(
    role: str, hosts: list[dict[str, Any]]
) -> list[dict[str, Any] | None]:
    """Return what templates make of the variables of each host."""
    shown = ', '.join(f'"{name}": __{role}_{name}' for name in MEANT[role])
    tell = (
        '{{ "<" ~ inventory_hostname ~ ":" ~ ({"vars": {' + shown + '}, '
        '"file": lookup("template", "nova-vhpc.conf.j2")} | to_json | '
        'b64encode) ~ ">" }}'
    )
    checks = yaml.safe_load((ROLES / role / 'tasks/main.yml').read_text())
    tasks = [checks[0], {'ansible.builtin.debug': {'msg': tell}}]
    with tempfile.TemporaryDirectory() as name:
        home = pathlib.Path(name)
        copy = home / 'roles' / role
        (copy / 'tasks').mkdir(parents=True)
        for part in ('defaults', 'vars', 'meta', 'templates'):
            (copy / part).symlink_to(ROLES / role / part)
        (copy / 'tasks/main.yml').write_text(yaml.safe_dump(tasks))
        variables = {
            f'h{number}': {
                'nova_vhpc_agent_os_packages': [],
                '__nova_vhpc_scheduler_lists': {'stdout': json.dumps(LISTS)},
                **{f'{role}_{name}': one for name, one in host.items()},
            }
            for number, host in enumerate(hosts)
        }
        (home / 'hosts.json').write_text(
            json.dumps({'all': {'hosts': variables}})
        )
        play = {'hosts': 'all', 'gather_facts': False, 'roles': [role]}
        (home / 'play.json').write_text(json.dumps([play]))
        done = subprocess.run(
            [
                *(sys.executable, '-m', 'ansible.cli.playbook'),
                *('-i', str(home / 'hosts.json'), str(home / 'play.json')),
            ],
            env={
                **os.environ,
                'ANSIBLE_HOME': str(home / 'ansible'),
                'ANSIBLE_NOCOLOR': '1',
            },
            capture_output=True,
            text=True,
            check=False,
        )
    told = {
        host: json.loads(base64.b64decode(code))
        for host, code in re.findall(r'<(h\d+):([\w+/=]+)>', done.stdout)
    }
    if not told:
        raise AssertionError(done.stdout + done.stderr)
    return [told.get(f'h{number}') for number in range(len(hosts))]


class VariablesTest(base.TestCase):
    def test_all_variables_are_read_as_they_are_meant(self) -> None:
        for role, rows in MEANT.items():
            defaults = yaml.safe_load(
                (ROLES / role / 'defaults/main.yml').read_text()
            )
            self.assertEqual(
                set(defaults), {f'{role}_{name}' for name in rows}
            )
            hosts = results(role)[0]
            for name, values in rows.items():
                for (value, meant), host in zip(values, hosts, strict=False):
                    with self.subTest(f'{role}_{name}', value=value):
                        assert host is not None
                        self.assertEqual(meant, host['vars'][name])

    def test_no_task_reads_a_variable_as_it_was_given(self) -> None:
        for role, rows in MEANT.items():
            for path in (ROLES / role).glob('[ht]*/*'):
                # Messages name the variables of the operator.
                text = re.sub(r'msg: >-\n(?: {4,}.*\n)+', '', path.read_text())
                with self.subTest(path.name):
                    self.assertNotRegex(
                        text, rf'(?<!_){role}_({"|".join(rows)})\b'
                    )

    def test_values_that_cannot_be_meant_are_refused(self) -> None:
        for given, found in zip(
            REFUSED, results('nova_vhpc_agent')[2], strict=True
        ):
            with self.subTest(given):
                self.assertIsNone(found)

    def test_files_have_what_was_meant(self) -> None:
        for role, files in (
            ('nova_vhpc_agent', AGENT_FILES),
            ('nova_vhpc_scheduler', SCHEDULER_FILES),
        ):
            for (given, meant), found in zip(
                files, results(role)[1], strict=True
            ):
                with self.subTest(given), tempfile.NamedTemporaryFile() as to:
                    assert found is not None
                    pathlib.Path(to.name).write_text(found['file'])
                    sections: dict[str, Any] = {}
                    cfg.ConfigParser(to.name, sections).parse()
                    self.assertEqual(meant, sections)
