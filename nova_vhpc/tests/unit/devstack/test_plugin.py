# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The devstack plugin against recorded devstack functions."""

import os
import pathlib
import re
import subprocess
import sys

import fixtures
from oslo_config import cfg

from nova_vhpc.tests import base

HERE = pathlib.Path(__file__).parent
TOP = HERE.parents[3]

NOVA_CONF = """[DEFAULT]
debug = True
[filter_scheduler]
enabled_filters = ComputeFilter,NUMATopologyFilter
track_instance_changes = False
"""

PLACEMENT_CONF = """[placement]
randomize_allocation_candidates = True
"""


class PluginTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.sandbox = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.nova_conf = self.sandbox / 'nova.conf'
        self.nova_conf.write_text(NOVA_CONF)
        self.placement_conf = self.sandbox / 'placement.conf'
        self.placement_conf.write_text(PLACEMENT_CONF)
        self.conf_dir = self.sandbox / 'etc' / 'nova-vhpc'
        self.state = self.sandbox / 'state'
        self.hooks = self.sandbox / 'hooks'

    def run_phase(
        self, *phase, services='n-cpu n-sch n-api placement-api', **env
    ):
        """Source the plugin as stack.sh does; return what was recorded."""
        record = self.sandbox / 'record'
        record.unlink(missing_ok=True)
        record.touch()
        script = (
            'set -o errexit; set -o xtrace; exec 2>"$SANDBOX/trace"; '
            'source "$HARNESS_DIR/functions.sh"; '
            'source "$TOP/devstack/override-defaults"; '
            'source "$TOP/devstack/settings"; '
            f'set -- {" ".join(phase)}; source "$TOP/devstack/plugin.sh"'
        )
        result = subprocess.run(
            ['bash', '-c', script],
            env={
                'PATH': os.environ['PATH'],
                'TOP': str(TOP),
                'PYTHON': sys.executable,
                'HARNESS_DIR': str(HERE),
                'RECORD': str(record),
                'SANDBOX': str(self.sandbox),
                'DEST': '/opt/stack',
                'DATA_DIR': str(self.sandbox / 'data'),
                'VHPC_DIR': str(TOP),
                'VHPC_CONF_DIR': str(self.conf_dir),
                'VHPC_RUN_PATH': str(self.sandbox / 'run'),
                'VHPC_STATE_PATH': str(self.state),
                'VHPC_VENDORDATA_STATE_PATH': str(self.sandbox / 'vendordata'),
                'VHPC_LIBVIRT_HOOKS': str(self.hooks),
                'VHPC_HOST_LOCK': str(self.sandbox / 'agent.lock'),
                'NOVA_CONF': str(self.nova_conf),
                'PLACEMENT_CONF': str(self.placement_conf),
                'DEFAULT_IMAGE_NAME': 'cirros-0.6.3-x86_64-disk',
                'ENABLED_SERVICES': services,
                'STACK_USER': 'stack',
                'ENABLE_DEBUG_LOG_LEVEL': 'True',
                'KEYSTONE_SERVICE_URI': 'http://ks/identity',
                'SERVICE_PASSWORD': 'secret',
                'SERVICE_DOMAIN_NAME': 'Default',
                'SERVICE_PROJECT_NAME': 'service',
                'SERVICE_HOST': '192.0.2.1',
                'METADATA_SERVICE_PORT': '8775',
                'PRIVATE_NETWORK_NAME': 'private',
                'REGION_NAME': 'RegionOne',
                **env,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(
            0,
            result.returncode,
            result.stdout + (self.sandbox / 'trace').read_text()[-3000:],
        )
        return record.read_text().splitlines()

    def scheduler_options(self):
        conf = cfg.ConfigOpts()
        conf.register_opts(
            [
                cfg.MultiStrOpt('available_filters', default=['none']),
                cfg.ListOpt('enabled_filters'),
                cfg.ListOpt('weight_classes'),
                cfg.BoolOpt('track_instance_changes'),
            ],
            'filter_scheduler',
        )
        conf(['--config-file', str(self.nova_conf)])
        return conf.filter_scheduler

    def agent_options(self):
        conf = cfg.ConfigOpts()
        file = self.conf_dir / 'nova-vhpc.conf'
        for group, options in _all_options():
            conf.register_opts(options, group)
        conf(['--config-file', str(file)])
        return conf

    def test_pre_install_brings_the_headers(self):
        calls = self.run_phase('stack', 'pre-install')
        self.assertTrue(
            any(c.startswith('install_package libvirt-dev ') for c in calls)
        )
        calls = self.run_phase('stack', 'pre-install', DISTRO_IS_UBUNTU='no')
        self.assertTrue(
            any(c.startswith('install_package libvirt-devel ') for c in calls)
        )

    def test_install_is_beside_nova(self):
        self.assertIn(
            f'setup_develop {TOP} agent,cli,osc,scheduler,top,vendordata',
            self.run_phase('stack', 'install'),
        )

    def test_post_config_adds_filter_and_weigher_and_drops_nothing(self):
        for _again in range(2):
            self.run_phase('stack', 'post-config')
            options = self.scheduler_options()
            self.assertEqual(
                [
                    'ComputeFilter',
                    'NUMATopologyFilter',
                    'VirtualClusterFilter',
                ],
                options.enabled_filters,
            )
            self.assertEqual(
                [
                    'nova.scheduler.filters.all_filters',
                    'nova_vhpc.scheduler.filters.VirtualClusterFilter',
                ],
                options.available_filters,
            )
            self.assertEqual(
                [
                    'nova.scheduler.weights.all_weighers',
                    'nova_vhpc.scheduler.weights.VirtualClusterWeigher',
                ],
                options.weight_classes,
            )
            self.assertFalse(options.track_instance_changes)

    def test_post_config_without_a_list_keeps_novas_own(self):
        self.nova_conf.write_text('[DEFAULT]\n')
        self.run_phase('stack', 'post-config')
        enabled = self.scheduler_options().enabled_filters
        import nova.conf

        self.assertEqual(
            [
                *nova.conf.CONF.filter_scheduler.enabled_filters,
                'VirtualClusterFilter',
            ],
            enabled,
        )

    def test_nothing_is_lost_to_what_runs_beside_post_config(self):
        self.run_phase('stack', 'post-config', NEUTRON_WRITES='yes')
        self.assertIn('[neutron]', self.nova_conf.read_text())
        self.assertIn(
            'VirtualClusterFilter', self.scheduler_options().enabled_filters
        )

    def test_a_compute_only_node_keeps_its_nova_conf(self):
        self.run_phase('stack', 'post-config', services='n-cpu')
        self.assertEqual(NOVA_CONF, self.nova_conf.read_text())
        self.assertTrue((self.conf_dir / 'nova-vhpc.conf').exists())

    def test_the_agents_file_is_private_and_its_options_exist(self):
        self.run_phase('stack', 'post-config', VHPC_CREATE_BRIDGES='True')
        file = self.conf_dir / 'nova-vhpc.conf'
        self.assertEqual(0o640, file.stat().st_mode & 0o777)
        known = {
            (group, option.dest)
            for group, options in _all_options()
            for option in options
        }
        section = None
        for line in file.read_text().splitlines():
            if line.startswith('['):
                section = line.strip('[]')
            elif '=' in line and section.startswith('vhpc_'):
                option = line.split('=')[0].strip()
                if option not in _AUTH:
                    self.assertIn((section, option), known)
        options = self.agent_options()
        self.assertEqual(str(self.state), options.vhpc_agent.state_path)

    def test_agent_believes_what_is_in_its_state_path(self):
        # Else it writes nothing, and devstack gives DATA_DIR to this user.
        calls = self.run_phase('stack', 'post-config')
        (made,) = [c for c in calls if c.endswith(f' {self.state}')]
        self.assertEqual(f'sudo install -d -m 0700 {self.state}', made)
        settings = (TOP / 'devstack/settings').read_text()
        (default,) = re.findall(r'VHPC_STATE_PATH:-(\S+)}', settings)
        self.assertEqual('/var/lib', os.path.dirname(default))

    def test_uplinks_of_example_bridges_count_whatever_is_published(self):
        for bridges, published in (
            ('', 'br-vhpc0:separate,br-vhpc1:separate'),
            ('br-vhpc*:shared:slots=4', 'br-vhpc*:shared:slots=4'),
        ):
            self.run_phase(
                *('stack', 'post-config'),
                VHPC_CREATE_BRIDGES='True',
                VHPC_BRIDGES=bridges,
            )
            topology = self.agent_options().vhpc_topology
            self.assertEqual(published.split(','), topology.bridges)
            # They are veth ends, which are no uplinks by themselves.
            self.assertEqual(['vhpc-up*'], topology.nic_patterns)

    def test_metadata_service_asks_vendordata(self):
        self.nova_conf.write_text(
            '[api]\nvendordata_dynamic_targets = other@http://192.0.2.9/\n'
        )
        for _ in range(2):
            self.run_phase('stack', 'post-config', services='n-api-meta')
            conf = cfg.ConfigOpts()
            for name in ('vendordata_providers', 'vendordata_dynamic_targets'):
                conf.register_opt(cfg.ListOpt(name), 'api')
            conf(['--config-file', str(self.nova_conf)])
            self.assertEqual(
                ['StaticJSON', 'DynamicJSON'], conf.api.vendordata_providers
            )
            self.assertEqual(
                ['other@http://192.0.2.9/', 'vhpc@http://127.0.0.1:9775/'],
                conf.api.vendordata_dynamic_targets,
            )
        self.assertIn('[vendordata_dynamic_auth]', self.nova_conf.read_text())
        # Ours alone goes with clean.sh.
        self.run_phase('clean', services='n-api-meta')
        self.assertIn('other@http://192.0.2.9/', self.nova_conf.read_text())
        self.assertNotIn('vhpc', self.nova_conf.read_text())

    def test_vendordata_goes_whole_if_it_is_ours_alone(self):
        self.run_phase('stack', 'post-config', services='n-api-meta')
        self.run_phase('clean', services='n-api-meta')
        after = self.nova_conf.read_text()
        for word in ('Dynamic', 'vendordata_dynamic_targets', 'secret'):
            self.assertNotIn(word, after)

    def test_vendordata_checks_tokens_at_the_public_endpoint(self):
        """The only one that devstack registers."""
        self.run_phase('stack', 'post-config', services='n-api-meta')
        text = (self.conf_dir / 'nova-vhpc.conf').read_text()
        part = text.partition('[keystone_authtoken]')[2].partition('[')[0]
        self.assertIn('interface = public', part)
        calls = self.run_phase('stack', 'extra', services='n-api-meta')
        (start,) = [c for c in calls if 'nova-vhpc-vendordata' in c]
        self.assertIn('run_process vhpc-vendordata', start)

    def test_vendordata_can_make_the_secret_of_its_ids(self):
        calls = self.run_phase('stack', 'post-config', services='n-api-meta')
        state = self.sandbox / 'vendordata'
        self.assertIn(f'install -d -o stack -m 0700 {state}', str(calls))
        text = (self.conf_dir / 'nova-vhpc.conf').read_text()
        self.assertIn(f'id_secret_file = {state}/id_secret\n', text)
        state.mkdir(exist_ok=True)
        self.run_phase('clean', services='n-api-meta')
        self.assertFalse(state.exists())

    def test_a_node_without_metadata_service_has_no_vendordata(self):
        self.run_phase('stack', 'post-config', services='n-api')
        text = (self.conf_dir / 'nova-vhpc.conf').read_text()
        self.assertNotIn('keystone_authtoken', text)
        calls = self.run_phase('stack', 'extra', services='n-api')
        self.assertFalse([c for c in calls if 'nova-vhpc-vendordata' in c])

    def test_libvirt_is_told_of_the_hook(self):
        calls = self.run_phase('stack', 'post-config')
        self.assertIn('restart_service libvirtd', calls)
        hook = self.hooks / 'qemu.d' / 'nova-vhpc'
        self.assertEqual(0o755, hook.stat().st_mode & 0o777)
        (prefix,) = re.findall(
            '^hook=(.*)/nova-vhpc-hook$', hook.read_text(), re.MULTILINE
        )
        self.assertEqual(str(self.sandbox / 'bin'), prefix)

    def test_extra_starts_the_agent_and_makes_the_flavor(self):
        calls = self.run_phase('stack', 'extra', MISSING='vhpc.example')
        (start,) = [c for c in calls if c.startswith('run_process')]
        self.assertIn('vhpc-agent', start)
        self.assertIn('--config-file', start)
        self.assertNotIn('--dry-run', start)
        self.assertTrue(
            any(c.startswith('openstack flavor create') for c in calls)
        )
        self.assertIn(
            'nova-vhpc-flavor set vhpc.example --workload parallel '
            '--network separate',
            calls,
        )
        again = self.run_phase('stack', 'extra')
        self.assertFalse(
            any(c.startswith('openstack flavor create') for c in again)
        )

    def test_switches_may_be_said_in_any_way_that_devstack_takes(self):
        calls = self.run_phase(
            'stack', 'extra', VHPC_DRY_RUN='1', VHPC_CREATE_FLAVOR='no'
        )
        (start,) = [c for c in calls if c.startswith('run_process')]
        self.assertIn(' --dry-run', start)
        self.assertFalse(any('flavor' in c for c in calls))

    def test_extra_makes_bridges_only_when_asked(self):
        self.assertFalse(
            any('link add' in c for c in self.run_phase('stack', 'extra'))
        )
        calls = self.run_phase(
            'stack',
            'extra',
            VHPC_CREATE_BRIDGES='True',
            VHPC_EXAMPLE_BRIDGES='br-vhpc0,br-vhpc1',
            MISSING='br-vhpc0 br-vhpc1 vhpc-up0 vhpc-up1',
        )
        self.assertIn('sudo ip link add br-vhpc0 type bridge', calls)
        self.assertIn('sudo ip link set vhpc-up1 master br-vhpc1', calls)

    def test_the_aggregate_is_made_when_nova_knows_the_host(self):
        """stack.sh waits for nova-compute between these two phases."""
        asked = {'VHPC_CREATE_AGGREGATE': 'True'}
        calls = self.run_phase('stack', 'extra', **asked)
        self.assertFalse(any('aggregate' in c for c in calls))
        calls = self.run_phase('stack', 'test-config')
        self.assertFalse(any('aggregate' in c for c in calls))
        calls = self.run_phase(
            'stack', 'test-config', MISSING='vhpc-switch-1', **asked
        )
        self.assertIn('openstack aggregate create vhpc-switch-1', calls)
        add = 'openstack aggregate add host vhpc-switch-1 devstack-host'
        self.assertIn(add, calls)
        for hosts, times in (
            ("['other', 'devstack-host']", 0),
            ('devstack-host', 0),
            ("['devstack-host-2']", 1),
        ):
            calls = self.run_phase(
                'stack', 'test-config', AGGREGATE_HOSTS=hosts, **asked
            )
            self.assertEqual(times, calls.count(add), hosts)
        calls = self.run_phase(
            'stack', 'test-config', services='n-api', **asked
        )
        self.assertNotIn(add, calls)

    def test_placement_is_told_to_answer_conflicts_until_clean(self):
        for _ in range(2):
            self.run_phase('stack', 'post-config')
            self.assertEqual(
                1,
                self.placement_conf.read_text().count(
                    'allocation_conflict_retry_count = 1'
                ),
            )
        self.run_phase('clean')
        self.assertEqual(PLACEMENT_CONF, self.placement_conf.read_text())

    def test_smoke_test_gets_network_and_metadata_where_they_are(self):
        for services, network, metadata in (
            ('n-api', None, None),
            ('n-api q-svc', 'private', None),
            ('n-api n-api-meta', None, 'http://192.0.2.1:8775'),
        ):
            self.run_phase('stack', 'test-config', services=services)
            file = self.conf_dir / 'scenario.env'
            found = dict(
                line.split('=', 1) for line in file.read_text().splitlines()
            )
            self.assertEqual('vhpc.example', found['VHPC_SCENARIO_FLAVOR'])
            self.assertEqual(network, found.get('VHPC_SCENARIO_NETWORK'))
            self.assertEqual(metadata, found.get('VHPC_SCENARIO_METADATA_URL'))

    def test_values_of_the_smoke_test_are_quoted(self):
        """gate.sh has a shell read them."""
        uri = 'qemu+ssh://u@h/system?keyfile=x&no_tty=1'
        self.run_phase(
            *('stack', 'test-config'),
            LIBVIRT_CONNECTION_URI=uri,
            DEFAULT_IMAGE_NAME="Debian 13's",
        )
        script = '. "$1"; echo "$VHPC_SCENARIO_LIBVIRT_URI"; '
        told = subprocess.run(
            [
                *('bash', '-euc', f'{script}echo "$VHPC_SCENARIO_IMAGE"'),
                *('bash', str(self.conf_dir / 'scenario.env')),
            ],
            check=True,
            capture_output=True,
            text=True,
        )
        self.assertEqual([uri, "Debian 13's"], told.stdout.splitlines())

    def test_test_config_has_nothing_to_tell_on_a_compute_node(self):
        self.run_phase('stack', 'test-config', services='n-cpu')
        self.assertFalse((self.conf_dir / 'scenario.env').exists())

    def test_unstack_stops_the_agent_and_removes_the_bridges(self):
        calls = self.run_phase('unstack', VHPC_CREATE_BRIDGES='True')
        self.assertIn('stop_process vhpc-agent', calls)
        self.assertIn('sudo ip link delete br-vhpc0', calls)
        self.assertIn('sudo ip link delete vhpc-up1', calls)

    def test_clean_leaves_nothing(self):
        self.run_phase('stack', 'post-config')
        run = self.sandbox / 'run'
        for path in (self.state, run):
            path.mkdir(parents=True, exist_ok=True)
        lock = self.sandbox / 'agent.lock'
        lock.touch()
        calls = self.run_phase('clean')
        self.assertFalse(self.conf_dir.exists())
        self.assertFalse(lock.exists())
        self.assertFalse(run.exists())
        self.assertFalse(self.state.exists())
        self.assertFalse((self.hooks / 'qemu.d' / 'nova-vhpc').exists())
        self.assertIn('pip_uninstall nova-vhpc', calls)
        (withdraw,) = [c for c in calls if ' --withdraw ' in c]
        self.assertTrue(withdraw.startswith('sudo '), withdraw)
        self.assertIn('/nova-vhpc-agent --config-file', withdraw)
        self.assertTrue(withdraw.endswith(' --withdraw-wait 0'), withdraw)
        self.assertNotIn('nova_vhpc', self.nova_conf.read_text())
        self.assertNotIn('VirtualCluster', self.nova_conf.read_text())
        self.assertEqual(
            ['ComputeFilter', 'NUMATopologyFilter'],
            self.scheduler_options().enabled_filters,
        )
        self.assertFalse((self.hooks / 'qemu.d').exists())
        # Once more: nothing of ours there, nothing to fail on.
        other = self.hooks / 'qemu.d' / 'other'
        other.parent.mkdir()
        other.touch()
        self.run_phase('clean')
        self.assertTrue(other.exists())

    def test_clean_says_if_keystone_is_gone_and_goes_on(self):
        self.run_phase('stack', 'post-config')
        calls = self.run_phase('clean', FAILING='nova-vhpc-agent')
        (told,) = [c for c in calls if c.startswith('echo_summary')]
        self.assertIn('stay in Placement', told)
        self.assertFalse(self.conf_dir.exists())

    def test_clean_takes_the_agents_file_wherever_it_is(self):
        file = self.sandbox / 'elsewhere.conf'
        self.run_phase('stack', 'post-config', VHPC_CONF=str(file))
        self.assertIn('secret', file.read_text())
        self.run_phase('clean', VHPC_CONF=str(file))
        self.assertFalse(file.exists())


_AUTH = {
    'auth_type',
    'auth_url',
    'interface',
    'username',
    'password',
    'user_domain_name',
    'project_name',
    'project_domain_name',
    'region_name',
}


def _all_options():
    from nova_vhpc.conf import opts

    return [
        (group if isinstance(group, str) else group.name, options)
        for group, options in opts.list_opts()
    ]
