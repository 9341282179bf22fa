# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What deploy names exists: options, variables, paths and files."""

import pathlib
import re
from typing import Any

import jinja2
import yaml
from keystoneauth1 import loading
from nova.conf import CONF as NOVA_CONF
from oslo_config import cfg
from packaging import requirements
from placement import conf as placement_conf

from nova_vhpc.conf import opts
from nova_vhpc.tests import base

TOP = pathlib.Path(__file__).parents[4]
DEPLOY = TOP / 'deploy'
FILTERS = 'nova_vhpc.scheduler.filters.VirtualClusterFilter'
WEIGHERS = 'nova_vhpc.scheduler.weights.VirtualClusterWeigher'


def our_options() -> dict[str, set[str]]:
    """Return our options by group, with those of the password plugin."""
    known = {
        (group if isinstance(group, str) else group.name): {
            name for option in options for name in (option.dest, option.name)
        }
        for group, options in opts.list_opts()
    }
    for group in ('placement', 'vhpc_nova'):
        known[group] |= {
            option.dest
            for option in loading.get_auth_plugin_conf_options('password')
        } | {option.dest for option in loading.get_auth_common_conf_options()}
    return known


def text(name: str) -> str:
    """Return a file of deploy."""
    return (DEPLOY / name).read_text()


class OptionsTest(base.TestCase):
    def assert_ours(self, config: dict[str, Any]) -> None:
        known = our_options()
        for group, options in config.items():
            self.assertEqual(set(), set(options) - known[group], group)

    def test_inventory_of_ansible_names_our_options(self) -> None:
        inventory = yaml.safe_load(text('ansible/inventory.example.yml'))
        agent = inventory['vhpc_computes']['vars']['nova_vhpc_agent_config']
        self.assertLess({'vhpc_agent', 'placement', 'vhpc_nova'}, set(agent))
        self.assertEqual(['transport_url'], list(agent.pop('DEFAULT')))
        self.assert_ours(agent)
        scheduler = inventory['vhpc_schedulers']['vars']
        self.assert_ours(scheduler['nova_vhpc_scheduler_config'])

    def test_inventory_sets_variables_of_the_roles(self) -> None:
        inventory = yaml.safe_load(text('ansible/inventory.example.yml'))
        for group, role in (
            ('vhpc_computes', 'nova_vhpc_agent'),
            ('vhpc_schedulers', 'nova_vhpc_scheduler'),
        ):
            defaults = yaml.safe_load(
                text(f'ansible/roles/{role}/defaults/main.yml')
            )
            described = yaml.safe_load(
                text(f'ansible/roles/{role}/meta/argument_specs.yml')
            )['argument_specs']['main']['options']
            self.assertEqual(set(defaults), set(described))
            self.assertLess(set(inventory[group]['vars']), set(defaults))
            for name, value in defaults.items():
                if 'default' in described[name]:
                    self.assertEqual(described[name]['default'], value, name)

    def test_scheduler_file_of_kolla_sets_options_of_nova_and_ours(
        self,
    ) -> None:
        path = DEPLOY / 'kolla/config/nova/nova-scheduler.conf'
        sections: dict[str, dict[str, list[str]]] = {}
        cfg.ConfigParser(str(path), sections).parse()
        nova = sections.pop('filter_scheduler')
        self.assertEqual(set(), set(nova) - set(NOVA_CONF.filter_scheduler))
        self.assertEqual(FILTERS, nova['available_filters'][-1])
        self.assertTrue(nova['enabled_filters'][0].endswith('ClusterFilter'))
        self.assertTrue(nova['weight_classes'][0].endswith(WEIGHERS))
        self.assertEqual(['1'], nova['host_subset_size'])
        self.assert_ours(sections)

    def test_placement_leaves_retries_to_the_scheduler(self) -> None:
        """Else Placement on MariaDB can give one uplink to two servers."""
        option = 'allocation_conflict_retry_count'
        known = cfg.ConfigOpts()
        placement_conf.register_opts(known)
        self.assertIn(option, known.placement)
        sections: dict[str, dict[str, list[str]]] = {}
        path = DEPLOY / 'kolla/config/placement.conf'
        cfg.ConfigParser(str(path), sections).parse()
        self.assertEqual({'placement': {option: ['1']}}, sections)
        variables = yaml.safe_load(
            text('openstack-ansible/user_variables_nova_vhpc.yml')
        )
        self.assertEqual(
            {'placement': {option: 1}},
            variables['placement_placement_conf_overrides'],
        )


class KollaTest(base.TestCase):
    def rendered(self, image: str, package_type: str) -> str:
        """Render the override for an image that has the block of ours."""
        parent = '{% block ' + image + '_footer %}{% endblock %}'

        class Macros:
            @staticmethod
            def install_pip(packages: list[str]) -> str:
                return f'pip install {" ".join(packages)}'

            @staticmethod
            def install_packages(packages: list[str]) -> str:
                return f'RUN packages {" ".join(packages)}'

        environment = jinja2.Environment(
            loader=jinja2.DictLoader(
                {'parent': parent, 'ours': text('kolla/template-overrides.j2')}
            ),
            undefined=jinja2.StrictUndefined,
        )
        return environment.get_template('ours').render(
            parent_template='parent',
            macros=Macros,
            base_package_type=package_type,
        )

    def test_images_of_nova_get_the_package(self) -> None:
        self.assertIn(
            'RUN pip install nova-vhpc[scheduler]',
            self.rendered('nova_base', 'deb'),
        )

    def test_image_of_libvirt_gets_hook_and_program(self) -> None:
        for package_type in ('deb', 'rpm'):
            told = self.rendered('nova_libvirt', package_type)
            self.assertIn('python3-libvirt', told)
            self.assertEqual(package_type == 'deb', 'python3-venv' in told)
            self.assertIn('/etc/libvirt/hooks/qemu.d/nova-vhpc', told)
            (hook,) = re.findall(r'/opt/nova-vhpc/(etc/\S+)', told)
            self.assertTrue((TOP / hook).exists(), hook)

    def test_prometheus_scrapes_the_agents_port(self) -> None:
        environment = jinja2.Environment()
        environment.filters['kolla_address'] = '{0}-{1}'.format
        environment.filters['put_address_in_context'] = '{0}'.format
        source = text('kolla/config/prometheus/prometheus.yml.d/nova-vhpc.yml')
        parsed = yaml.safe_load(
            environment.from_string(source).render(
                groups={'compute': ['cn1', 'cn2']}
            )
        )
        (job,) = parsed['scrape_configs']
        self.assertEqual(
            ['api-cn1:9619', 'api-cn2:9619'],
            job['static_configs'][0]['targets'],
        )


class OpenStackAnsibleTest(base.TestCase):
    def test_nova_takes_the_host_of_the_plan(self) -> None:
        variables = yaml.safe_load(
            text('openstack-ansible/user_variables_nova_vhpc.yml')
        )
        self.assertEqual(1, variables['nova_scheduler_host_subset_size'])
        (line,) = variables['nova_user_pip_packages']
        package = requirements.Requirement(line)
        self.assertEqual('nova-vhpc', package.name)
        self.assertEqual({'scheduler'}, package.extras)

    def test_playbook_uses_our_roles_with_their_variables(self) -> None:
        plays = yaml.safe_load(text('openstack-ansible/nova-vhpc.yml'))
        for play in plays:
            (entry,) = play['roles']
            defaults = yaml.safe_load(
                text(f'ansible/roles/{entry["role"]}/defaults/main.yml')
            )
            self.assertLessEqual(set(entry.get('vars', ())), set(defaults))


class UnitTest(base.TestCase):
    def test_agent_starts_no_daemon_of_libvirt(self) -> None:
        unit = (TOP / 'etc/nova-vhpc/nova-vhpc-agent.service').read_text()
        self.assertNotRegex(unit, '(?m)^(Wants|Requires|BindsTo|Upholds)=')
        # systemd stops units in the reverse order, when the host shuts down.
        for daemon in ('libvirtd.service', 'virtqemud.service'):
            self.assertRegex(unit, rf'(?m)^After=.*\b{daemon}')
