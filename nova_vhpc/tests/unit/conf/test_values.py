# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Wrong values of options stop a program when it starts."""

from pathlib import Path

import fixtures
from oslo_config import cfg

from nova_vhpc import conf as conf_package
from nova_vhpc.agent import errors
from nova_vhpc.agent.daemon import options
from nova_vhpc.conf import agent, scheduler
from nova_vhpc.tests import base

RELATIVE = (('etc/x',), 'is no absolute path, such as /etc/x')
NEEDED_PATH = ((*RELATIVE[0], ''), '')
WRONG = {
    'vhpc_agent': {
        'libvirt_uri': (('localhost:16509', '/x y'), 'qemu:///system'),
        'host': (('a b', 'a,b'), 'is no name'),
        'state_path': NEEDED_PATH,
        'run_path': NEEDED_PATH,
        'cpu_shared_set': (('2-', 'x', '8-4', '0-9999999'), ''),
        'period_ms': (('0', '100.5', ''), 'from 30 to 10000'),
        'call_deadline': (('nan', '-1', 'inf'), 'a number of seconds from'),
        'foreign_changes': (('Respect', ''), 'respect, override'),
        'dry_run': (('flase', ''), 'boolean'),
        'metrics_host': (('', '[::1]', '10.0.0.1:9619'), 'host address'),
        'metrics_port': (('65536', '-1', 'http'), 'from 0 to 65535'),
        'metrics_cert_file': NEEDED_PATH,
        'metrics_key_file': NEEDED_PATH,
        'metrics_client_ca_file': NEEDED_PATH,
        'status_socket_mode': (('0999', 'rw'), ''),
        'ovs_run_dir': RELATIVE,
        'cgroup_root': NEEDED_PATH,
        'proc_root': NEEDED_PATH,
        'sys_root': NEEDED_PATH,
    },
    'vhpc_control': {
        'io_pool_cpus': (('0-', '7-0'), ''),
        'computing_pool_cpus': (('all',), '2-15,^8'),
        'leave_rule': (('none',), 'learned, paper'),
    },
    'vhpc_topology': {
        'node': (('a b',), 'is no name'),
        'compute_id_file': RELATIVE,
        'bridges': (
            (
                *('br:x', 'br:slots=x', 'br:slot=8', ':shared', 'a,a'),
                'a:separate:slots=2',
            ),
            '',
        ),
        'ovsdb_connection': (
            (
                *('ssl:10.0.0.1:6640', '127.0.0.1:6640', 'tcp:10.0.0.1'),
                *('tcp:::1:6640', 'tcp:[::1:6640', 'tcp:h:0', 'tcp:h:65536'),
                *('tcp:h:x', 'unix:', 'unix:db.sock', 'punix:/x'),
            ),
            'allowed: unix:PATH, such as unix:/run/openvswitch/db.sock, and '
            'tcp:ADDRESS:PORT',
        ),
        'ml2_config_files': RELATIVE,
        'poll_interval': (('0', '3601'), 'from 1 to 3600'),
        'stamp_interval': (('-1', '99999999999'), 'from 0 to 2678400'),
        'sysfs': NEEDED_PATH,
    },
    'vhpc_nova': {
        'poll_interval': (('0', '99999999999'), 'from 1 to 2678400'),
        'groups_file': RELATIVE,
    },
    'vhpc_peers': {
        'enabled': (('flase',), 'boolean'),
        'call_timeout': (('inf', '1e12'), 'from 0.1 to 86400'),
    },
}  # fmt: skip
"""Wrong values of the agent's options, and what the message has."""

RIGHT = {
    'vhpc_agent': {
        'libvirt_uri': ('qemu+tls://h/system', 'test+none:///', 'hail', ''),
        'cpu_shared_set': ('2-15,^8', ''),
        'ovs_run_dir': ('', '/host/run/openvswitch'),
    },
    'vhpc_topology': {
        'ovsdb_connection': (
            *('unix:/x', 'tcp:127.0.0.1:6640', 'tcp:[::1]:6640'),
            '',
        ),
        'bridges': ('', 'br-ex:shared:slots=16,br-hpc*:separate'),
    },
}


class ValuesTest(base.TestCase):
    def setUp(self) -> None:
        super().setUp()
        self.file = Path(self.useFixture(fixtures.TempDir()).join('a.conf'))

    def conf(self, group: str, *lines: str) -> cfg.ConfigOpts:
        self.file.write_text('\n'.join((f'[{group}]', *lines, '')))
        return options.make_conf(['--config-file', str(self.file)])

    def test_wrong_value_is_named_with_option_and_file(self) -> None:
        for group, rows in WRONG.items():
            for name, (values, words) in rows.items():
                for value in values:
                    with self.subTest(f'[{group}]{name} = {value}'):
                        conf = self.conf(group, f'{name} = {value}')
                        error = self.assertRaises(
                            cfg.Error, options.check, conf
                        )
                        text = conf_package.reason(error)
                        self.assertTrue(text.startswith(f'[{group}]{name}: '))
                        self.assertIn(str(self.file), text)
                        self.assertIn(words, text)

    def test_values_that_operators_have_are_taken(self) -> None:
        for group, rows in RIGHT.items():
            for name, values in rows.items():
                for value in values:
                    with self.subTest(f'[{group}]{name} = {value}'):
                        options.check(self.conf(group, f'{name} = {value}'))

    def test_every_default_is_right(self) -> None:
        options.check(self.conf('vhpc_agent'))

    def test_missing_file_is_named(self) -> None:
        missing = str(self.file.with_name('nosuch'))
        error = self.assertRaises(
            errors.AgentError, options.load, ['--config-file', missing]
        )
        self.assertIn(f'no configuration file {missing}', str(error))

    def test_restore_uses_the_usual_places_instead_of_wrong_ones(self) -> None:
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc.conf'))
        conf = self.conf('vhpc_agent', 'proc_root = proc', 'sys_root = /x')
        conf_package.replace_wrong(conf, agent.GROUP.name, agent.ROOTS)
        self.assertEqual('/proc', conf.vhpc_agent.proc_root)
        self.assertEqual('/x', conf.vhpc_agent.sys_root)
        self.assertIn("'proc' is no absolute path", log.output)

    def test_options_of_the_scheduler_that_contradict_are_named(self) -> None:
        for text, words in (
            (
                'rack_key = vhpc:switch',
                'rack_key is vhpc:switch, as is switch_key',
            ),
            ('switch_key =', 'switch_key is empty'),
            ('switch_key = a b', 'is no name'),
            ('snapshot_max_age = 29', 'less than snapshot_ttl (30 s)'),
            ('first_read_timeout = 1e12', 'from 0.1 to 86400'),
        ):
            with self.subTest(text):
                self.file.write_text(f'[vhpc_scheduler]\n{text}\n')
                conf = cfg.ConfigOpts()
                scheduler.register_opts(conf)
                conf([], default_config_files=[str(self.file)])
                error = self.assertRaises(cfg.Error, scheduler.check, conf)
                self.assertIn(words, str(error))
