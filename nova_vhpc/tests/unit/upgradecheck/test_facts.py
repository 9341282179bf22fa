# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import contextlib
import io
import json
import pathlib
import socket
import subprocess
import sys
import threading
from unittest import mock

import fixtures
import libvirt
from oslo_upgradecheck import upgradecheck

from nova_vhpc.agent.daemon import status_socket
from nova_vhpc.agent.health import watch
from nova_vhpc.agent.libvirt import connection
from nova_vhpc.cli import status
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.agent.daemon import status_document
from nova_vhpc.upgradecheck import checks, cloud, facts, scheduler


class HookTest(base.TestCase):
    """The state of libvirt's hook script and its program."""

    def setUp(self):
        super().setUp()
        self.dir = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.program = self.dir / 'nova-vhpc-hook'
        self.script = self.dir / 'nova-vhpc'
        packaged = pathlib.Path(__file__).parents[4] / 'etc' / 'nova-vhpc'
        text = (packaged / 'libvirt-qemu-hook').read_text()
        self.script.write_text(
            text.replace('/usr/bin/nova-vhpc-hook', str(self.program))
        )
        self.script.chmod(0o755)
        self.program.touch(0o755)

    def check(self):
        return checks.libvirt_hook(*facts.hook(self.script))

    def test_installed_hook_succeeds(self):
        self.assertIsNone(self.check().details)

    def test_missing_program_is_warned_of(self):
        self.program.unlink()
        result = self.check()
        self.assertEqual(upgradecheck.Code.WARNING, result.code)
        self.assertIn(str(self.program), result.details)

    def test_script_that_is_not_executable_is_warned_of(self):
        self.script.chmod(0o644)
        self.assertEqual(upgradecheck.Code.WARNING, self.check().code)

    def test_missing_hook_succeeds_with_a_hint(self):
        self.script.unlink()
        result = self.check()
        self.assertEqual(upgradecheck.Code.SUCCESS, result.code)
        self.assertIn('not installed', result.details)


class LibvirtTest(base.TestCase):
    def check(self, *signs, connect=None):
        self.useFixture(
            fixtures.MockPatchObject(
                libvirt,
                'openReadOnly',
                side_effect=connect or libvirt.libvirtError('away'),
            )
        )
        self.useFixture(fixtures.MockPatchObject(facts, '_SIGNS', signs))
        conf = status.make_conf()
        conf([], default_config_files=[])
        return facts.Checks(conf)._check_libvirt()

    def test_libvirt_away_on_a_compute_host_fails(self):
        existing = self.useFixture(fixtures.TempDir()).path
        self.assertEqual(
            upgradecheck.Code.FAILURE, self.check('/nowhere', existing).code
        )

    def test_libvirt_away_on_another_host_succeeds(self):
        self.assertEqual(
            upgradecheck.Code.SUCCESS, self.check('/nowhere').code
        )

    def test_libvirt_that_hangs_fails(self):
        hang = threading.Event()
        self.addCleanup(hang.set)
        self.useFixture(
            fixtures.MockPatchObject(connection, 'SILENCE_S', 0.05)
        )
        existing = self.useFixture(fixtures.TempDir()).path
        result = self.check(existing, connect=lambda uri: hang.wait(10))
        self.assertEqual(upgradecheck.Code.FAILURE, result.code)
        self.assertIn('does not answer', result.details)

    def without_bindings(self, *signs):
        # None in sys.modules makes the import fail.
        with mock.patch.dict('sys.modules', {'libvirt': None}):
            return self.check(*signs)

    def test_compute_host_without_bindings_fails_and_names_the_extra(self):
        existing = self.useFixture(fixtures.TempDir()).path
        result = self.without_bindings(existing)
        self.assertEqual(upgradecheck.Code.FAILURE, result.code)
        self.assertIn("pip install 'nova-vhpc[agent]'", result.details)

    def test_other_host_without_bindings_succeeds(self):
        self.assertEqual(
            upgradecheck.Code.SUCCESS, self.without_bindings('/nowhere').code
        )

    def test_libvirts_configuration_is_a_sign_of_a_compute_host(self):
        # Both Debian and RPM packages of libvirt have it, KVM need not exist.
        self.assertIn('/etc/libvirt', facts._SIGNS)


class SchedulerTest(base.TestCase):
    def check(self, lines='', ours=''):
        """Check lines of ``[filter_scheduler]`` and ``[vhpc_scheduler]``."""
        file = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'conf')
        file.write_text(
            '[filter_scheduler]\n'
            'available_filters = nova.scheduler.filters.all_filters\n'
            f'available_filters = {scheduler.FILTER_CLASS}\n'
            f'enabled_filters = ComputeFilter,{scheduler.FILTER}\n'
            f'weight_classes = {scheduler.ALL_WEIGHERS},'
            f'{scheduler.WEIGHER_CLASS}\n'
            f'{lines}\n[vhpc_scheduler]\n{ours}\n'
        )
        conf = status.make_conf()
        conf(['--config-file', str(file)], default_config_files=[])
        return facts.Checks(conf)._check_scheduler()

    def test_success_where_nova_is_not_installed(self):
        with mock.patch.object(facts, '_version', return_value=None):
            found = self.check()
        self.assertEqual(upgradecheck.Code.SUCCESS, found.code)
        self.assertIn('not installed', found.details)

    def test_invalid_scheduler_option_fails(self):
        found = self.check()
        self.assertEqual(upgradecheck.Code.SUCCESS, found.code)
        self.assertIsNone(found.details)
        for line in (
            'max_overcommit = openmp:0',
            'weight_multiplier = nan',
            'cost_table = /nowhere/costs.json',
        ):
            found = self.check(ours=line)
            self.assertEqual(upgradecheck.Code.FAILURE, found.code)
            self.assertIn(line.split()[0], found.details)

    def test_options_by_which_nova_leaves_the_plan(self):
        for line in (
            'host_subset_size = 3',
            'track_instance_changes = False',
            'ram_weight_multiplier = 1000',
        ):
            found = self.check(line)
            self.assertEqual(upgradecheck.Code.WARNING, found.code, line)
            self.assertIn(line.split()[0], found.details)

    def test_weighers_that_a_plan_must_not_outweigh_are_no_trap(self):
        for line in (
            'build_failure_weight_multiplier = 5000000',
            'cross_cell_move_weight_multiplier = 5000000',
        ):
            found = self.check(line)
            self.assertEqual(upgradecheck.Code.SUCCESS, found.code, line)

    def test_shuffled_hosts_are_a_success(self):
        found = self.check('shuffle_best_same_weighed_hosts = True')
        self.assertEqual(upgradecheck.Code.SUCCESS, found.code)
        self.assertIn('shuffle_best_same_weighed_hosts', found.details)


class OptionsTest(base.TestCase):
    def check(self, text):
        file = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'conf')
        file.write_text(text)
        conf = status.make_conf()
        conf(['--config-file', str(file)], default_config_files=[])
        return facts.Checks(conf)._check_options()

    def test_invalid_option_of_a_service_fails(self):
        """For example after an upgrade to a stricter release."""
        for text, name in (
            ('[vhpc_agent]\nperiod_ms = x\nfoo = 1\n', 'period_ms'),
            ('[vhpc_control]\ngang_favour = nan\nfoo = 1\n', 'gang_favour'),
            ('[vhpc_vendordata]\nlisten_port = x\nfoo = 1\n', 'listen_port'),
        ):
            result = self.check(text)
            self.assertEqual(upgradecheck.Code.FAILURE, result.code, text)
            self.assertIn(name, result.details)
            self.assertIn('foo is no option', result.details)

    def test_valid_options_succeed(self):
        result = self.check('[vhpc_agent]\nperiod_ms = 100\n')
        self.assertEqual(upgradecheck.Code.SUCCESS, result.code)

    def test_scheduler_options_are_not_checked_here(self):
        result = self.check('[vhpc_scheduler]\nweight_multiplier = nan\n')
        self.assertEqual(upgradecheck.Code.SUCCESS, result.code)


class CommandTest(base.TestCase):
    """The whole command on a host where no service answers."""

    def run_(self, placement, options=''):
        conf = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path, 'nova-vhpc.conf'
        )
        conf.write_text(
            '[vhpc_agent]\nslice_policy = atc\n'
            'libvirt_uri = qemu+unix:///system?socket=/nonexistent\n'
            f'{options}[placement]\n{placement}'
        )
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = status.main(
                ['--config-file', str(conf), 'upgrade', 'check', '--json']
            )
        return code, {
            check['check']: check
            for check in json.loads(out.getvalue())['checks']
        }

    def test_faults_are_printed_in_the_table_only(self):
        # libvirt writes to stderr past Python, so the test needs a process.
        conf = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path, 'nova-vhpc.conf'
        )
        conf.write_text(
            '[vhpc_agent]\n'
            'libvirt_uri = qemu+unix:///system?socket=/nonexistent\n'
        )
        done = subprocess.run(
            [
                sys.executable,
                '-c',
                'import sys\nfrom nova_vhpc.cli import status\n'
                'sys.exit(status.main())',
                *('--config-file', str(conf), 'upgrade', 'check'),
            ],
            capture_output=True,
            text=True,
        )
        self.assertEqual(2, done.returncode)
        self.assertIn('Failed to connect socket', done.stdout)
        self.assertNotIn('Failed to connect socket', done.stderr)

    def test_unusable_credentials_fail_with_the_reason(self):
        secret = 'auth_type = password\nauth_url = https://127.0.0.1:9/v3\n'
        user = 'username = nova\npassword = secret\n'
        for placement, words in (
            ('', 'set auth_type of [placement]'),
            ('auth_section = nowhere\n', 'does auth_section of [placement]'),
            (secret + 'username = nova\n', 'password is a required'),
            (secret + user + 'cafile = /nowhere\n', '/nowhere'),
            (
                'auth_section = service\n[service]\n' + secret + user,
                'Unable to establish connection',
            ),
        ):
            code, results = self.run_(placement)
            self.assertEqual(2, code)
            self.assertIn(words, results['Placement']['details'])
            for name in ('Claims and networks', 'Flavors'):
                # Not a success: nobody has looked.
                self.assertEqual(1, results[name]['result'])
                self.assertIn('are not checked: ', results[name]['details'])
                self.assertIn(words, results[name]['details'])

    def test_unresolvable_dollar_sign_fails_without_the_secret(self):
        code, results = self.run_(
            'auth_type = password\nauth_url = https://127.0.0.1:9/v3\n'
            'username = nova\npassword = 1$k9x7\n',
            'cgroup_root = $cgroup_root\nlibvirt_uri = $no\n',
        )
        self.assertEqual(2, code)
        for name, words in (
            ('Options', '[vhpc_agent]'),
            ('libvirt', 'no such option no'),
            ('cgroup controllers', '$$'),
            ('Placement', ''),
        ):
            self.assertEqual(2, results[name]['result'], name)
            self.assertIn(words, results[name]['details'])
        self.assertEqual(0, results['Known traps']['result'])
        _, results = self.run_('auth_type = password\npassword = 1$k9x7\n')
        self.assertIn('[placement]password', results['Options']['details'])
        self.assertNotIn('k9x7', results['Options']['details'])

    def test_json_has_the_result_of_every_check(self):
        code, results = self.run_(
            'auth_type = none\nendpoint_override = http://127.0.0.1:9\n'
        )
        self.assertEqual(2, code)
        self.assertEqual(0, results['Nova version']['result'])
        self.assertEqual(1, results['Options']['result'])
        self.assertIn('vhpc_control', results['Options']['details'])
        self.assertEqual(2, results['Filter and weigher']['result'])
        self.assertEqual(2, results['Placement']['result'])
        self.assertEqual(0, results['Known traps']['result'])
        self.assertIn('us', results['Tick and time slice']['details'])


class AgentTest(base.TestCase):
    """The check asks the agent that runs on this host."""

    def setUp(self):
        super().setUp()
        self.run_path = self.useFixture(fixtures.TempDir()).path
        self.path = status_socket.socket_path(self.run_path)

    def check(self):
        conf = status.make_conf()
        conf([], default_config_files=[])
        conf.set_override('run_path', self.run_path, 'vhpc_agent')
        return facts.Checks(conf)._check_agent()

    def serve(self, document):
        server = status_socket.StatusServer(self.path, 0o600, lambda: document)
        server.start()
        self.addCleanup(server.stop)

    def test_missing_agent_is_a_fault_on_compute_hosts_only(self):
        for signs, code, words in (
            (('/nowhere',), upgradecheck.Code.SUCCESS, 'no agent runs here'),
            ((self.run_path,), upgradecheck.Code.WARNING, 'not checked'),
        ):
            with mock.patch.object(facts, '_SIGNS', signs):
                result = self.check()
            self.assertEqual(code, result.code)
            self.assertIn(words, result.details)
            self.assertIn(self.path, result.details)

    def test_agent_that_is_not_healthy_is_a_warning(self):
        document = status_document.document()
        document['health'] = watch.HealthWatch().judge(document)
        self.serve(document)
        result = self.check()
        self.assertEqual(upgradecheck.Code.WARNING, result.code)
        self.assertIn('probes: degraded since', result.details)

    def test_socket_that_nobody_serves_is_a_warning(self):
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(self.path)
        result = self.check()
        self.assertEqual(upgradecheck.Code.WARNING, result.code)
        self.assertIn(f'{self.path}: ', result.details)

    def test_answer_of_another_program_is_a_warning(self):
        for answer in (
            [],
            {},
            {'health': {}},
            {'health': {'parts': {'bus': {}}}},
            {'health': 3},
        ):
            with self.subTest(answer=answer):
                server = status_socket.StatusServer(
                    self.path, 0o600, lambda answer=answer: answer
                )
                server.start()
                result = self.check()
                server.stop()
                self.assertEqual(upgradecheck.Code.WARNING, result.code)


class FlavorsAnswer:
    def __init__(self, flavors):
        self.flavors = flavors

    def json(self):
        return {'flavors': self.flavors}


class Nova:
    """Answers two flavors at a time, as ``[api]max_limit = 2`` does."""

    def __init__(self, count):
        self.flavors = [
            {'id': str(n), 'name': f'f{n}', 'extra_specs': {'n': str(n)}}
            for n in range(count)
        ]

    def get(self, path, params, microversion):
        assert path == '/flavors/detail'
        assert params['is_public'] == 'None'
        ids = [flavor['id'] for flavor in self.flavors]
        marker = params.get('marker')
        start = ids.index(marker) + 1 if marker else 0
        return FlavorsAnswer(self.flavors[start : start + 2])


class FlavorFactsTest(base.TestCase):
    def test_flavors_of_all_pages_are_read(self):
        for count in (0, 1, 2, 5):
            self.assertEqual(
                {f'f{n}': {'n': str(n)} for n in range(count)},
                cloud.flavors(Nova(count)),
            )
