# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Write the configuration files of the embedded stack."""

import base64
import configparser
import json
import secrets
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from nova_vhpc_lab.stack import environment, identity

Sections = Mapping[str, Mapping[str, object]]

FILTERS = (
    'ComputeFilter,ComputeCapabilitiesFilter,ImagePropertiesFilter,'
    'ServerGroupAntiAffinityFilter,ServerGroupAffinityFilter,'
    'VirtualClusterFilter'
)


def write(path: Path, *parts: Sections) -> Path:
    """Write an INI file and return its path.

    :param parts: options by section; later parts override earlier ones. A
        list becomes an option that is repeated.
    """
    merged: dict[str, dict[str, object]] = {}
    for part in parts:
        for group, options in part.items():
            merged.setdefault(group, {}).update(options)
    lines = []
    for group, options in merged.items():
        lines.append(f'[{group}]')
        for name, value in options.items():
            values = value if isinstance(value, list) else [value]
            lines += [f'{name} = {value}' for value in values]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('\n'.join(lines) + '\n')
    return path


def read(path: Path) -> configparser.RawConfigParser:
    """Read an INI file."""
    parser = configparser.RawConfigParser(strict=False)
    parser.read(path)
    return parser


class Config:
    """The configuration of one stack.

    :param root: directory of the stack; files are written to ``root/etc``.
    :param ports: TCP ports by service.
    :param tag: prefix of the names of instances.
    """

    def __init__(self, root: Path, ports: Mapping[str, int], tag: str) -> None:
        self.root = root
        self.etc = root / 'etc'
        self.ports = ports
        self.tag = tag

    def url(self, service: str, path: str = '') -> str:
        """Return a URL of a service."""
        return f'http://127.0.0.1:{self.ports[service]}{path}'

    def database(self, name: str) -> str:
        """Return SQLAlchemy's URL of a database."""
        return f'mysql+pymysql://vhpc:vhpc@127.0.0.1:{self.ports["db"]}/{name}'

    @property
    def transport_url(self) -> str:
        """URL of RabbitMQ."""
        return f'rabbit://guest:guest@127.0.0.1:{self.ports["rabbit"]}/'

    def credentials(self, user: str) -> dict[str, object]:
        """Return keystoneauth's options for a user."""
        return {
            'auth_type': 'password',
            'auth_url': self.url('keystone', '/v3'),
            'username': user,
            'password': identity.PASSWORD,
            'project_name': identity.USERS[user].project,
            'user_domain_id': 'default',
            'project_domain_id': 'default',
        }

    def write_keystone(
        self, interfaces: Sequence[str] = ('public', 'internal', 'admin')
    ) -> Path:
        """Write keystone.conf, keys and endpoints.

        :param interfaces: interfaces that the catalog has of each service.
        :returns: directory of the files, OS_KEYSTONE_CONFIG_DIR.
        """
        folder = self.etc / 'keystone'
        keys = folder / 'keys'
        keys.mkdir(parents=True, mode=0o700)
        # As of keystone-manage fernet_setup: the staged and the primary key.
        for name in '01':
            key = base64.urlsafe_b64encode(secrets.token_bytes(32))
            (keys / name).write_bytes(key)
        write(
            folder / 'keystone.conf',
            {
                'database': {'connection': self.database('keystone')},
                'token': {'provider': 'fernet'},
                'fernet_tokens': {'key_repository': keys},
                'fernet_receipts': {'key_repository': keys},
                # The least that bcrypt takes: passwords need no protection.
                'identity': {'password_hash_rounds': 4},
            },
        )
        endpoints = {
            'identity': self.url('keystone', '/v3'),
            'image': self.url('glance'),
            'network': self.url('neutron'),
            'placement': self.url('placement'),
            'compute': self.url('nova', '/v2.1'),
        }
        (folder / 'endpoints.json').write_text(
            json.dumps(
                {
                    kind: dict.fromkeys(interfaces, url)
                    for kind, url in endpoints.items()
                }
            )
        )
        return folder

    def write_glance(self) -> Path:
        """Write glance-api.conf; return OS_GLANCE_CONFIG_DIR."""
        folder, state = self.etc / 'glance', self.root / 'glance'
        stores = {
            name: {'filesystem_store_datadir': state / name}
            for name in (
                'file',
                'os_glance_staging_store',
                'os_glance_tasks_store',
            )
        }
        for name in stores:
            (state / name).mkdir(parents=True)
        write(
            folder / 'glance-api.conf',
            {
                'DEFAULT': {'enabled_backends': 'file:file'},
                'database': {'connection': self.database('glance')},
                'glance_store': {'default_backend': 'file'},
                'keystone_authtoken': self._authtoken('glance'),
                'paste_deploy': {
                    'flavor': 'keystone',
                    'config_file': Path(
                        sys.prefix, 'etc', 'glance', 'glance-api-paste.ini'
                    ),
                },
                **stores,
            },
        )
        return folder

    def write_placement(self) -> Path:
        """Write placement.conf; return OS_PLACEMENT_CONFIG_DIR."""
        folder = self.etc / 'placement'
        write(
            folder / 'placement.conf',
            {
                'DEFAULT': {'debug': False},
                'api': {'auth_strategy': 'keystone'},
                # With more retries, an uplink can be allocated twice: see
                # Claims in doc/source/admin/placement.rst.
                'placement': {'allocation_conflict_retry_count': 1},
                'placement_database': {
                    'connection': self.database('placement'),
                    'sync_on_startup': True,
                },
                'keystone_authtoken': self._authtoken('placement'),
            },
        )
        return folder

    def write_neutron(self, ovn: Path) -> Path:
        """Write neutron.conf; return OS_NEUTRON_CONFIG_DIR.

        :param ovn: directory of the lab that has OVN.
        """
        central = f'unix:{ovn}/fabric/ovn%s_db.sock'
        folder = self.etc / 'neutron'
        write(
            folder / 'neutron.conf',
            {
                'DEFAULT': {
                    'core_plugin': 'ml2',
                    'service_plugins': '',
                    'transport_url': self.transport_url,
                    'state_path': self.root / 'neutron',
                    'api_paste_config': Path(
                        sys.prefix, 'etc', 'neutron', 'api-paste.ini'
                    ),
                },
                'database': {'connection': self.database('neutron')},
                'keystone_authtoken': self._authtoken('neutron'),
                # Neutron tells Nova when a port is wired.
                'nova': self.credentials('neutron'),
                'oslo_concurrency': {
                    'lock_path': self.root / 'neutron' / 'lock'
                },
                'ml2': {
                    'mechanism_drivers': 'ovn',
                    'type_drivers': 'geneve',
                    'project_network_types': 'geneve',
                    'extension_drivers': 'port_security',
                },
                'ml2_type_geneve': {
                    'vni_ranges': '1:1000',
                    'max_header_size': 38,
                },
                'ovn': {
                    'ovn_nb_connection': central % 'nb',
                    'ovn_sb_connection': central % 'sb',
                },
            },
        )
        return folder

    def _authtoken(self, user: str) -> dict[str, object]:
        return {
            'www_authenticate_uri': self.url('keystone', '/v3'),
            # The default, internal, is absent from many catalogs.
            'interface': 'public',
            'service_token_roles_required': True,
            **self.credentials(user),
        }

    def nova_common(self) -> Sections:
        """Return the options that all services of Nova share."""
        return {
            'DEFAULT': {
                'debug': False,
                'transport_url': self.transport_url,
                'state_path': self.root / 'nova',
                'my_ip': '127.0.0.1',
                'instance_name_template': f'{self.tag}-%08x',
                'service_down_time': 120,
                'report_interval': 5,
                'rpc_response_timeout': 180,
            },
            'service_user': {
                'send_service_user_token': True,
                **self.credentials('nova'),
            },
            'placement': self.credentials('nova'),
            'neutron': self.credentials('nova'),
            'cinder': self.credentials('nova'),
            'oslo_concurrency': {'lock_path': self.root / 'nova' / 'lock'},
            'cache': {'enabled': False},
            'upgrade_levels': {'compute': 'auto'},
            'quota': {'instances': 100, 'cores': 200, 'ram': -1},
            'vnc': {'enabled': False},
        }

    def write_nova(self, scheduler: Sections) -> Path:
        """Write the nova.conf of API, conductor and scheduler.

        :param scheduler: options of the scheduler, like filters and weighers.
        :returns: directory of the file.
        """
        folder = self.etc / 'nova'
        folder.mkdir(parents=True, exist_ok=True)
        for name in ('lock', 'instances'):
            (self.root / 'nova' / name).mkdir(parents=True, exist_ok=True)
        shutil.copy(
            Path(sys.prefix, 'etc', 'nova', 'api-paste.ini'),
            folder / 'api-paste.ini',
        )
        write(
            folder / 'nova.conf',
            self.nova_common(),
            {
                'database': {'connection': self.database('nova')},
                'api_database': {'connection': self.database('nova_api')},
                'keystone_authtoken': self._authtoken('nova'),
                'wsgi': {'api_paste_config': folder / 'api-paste.ini'},
                'scheduler': {'workers': 2},
                'conductor': {'workers': 1},
            },
            scheduler,
        )
        return folder

    def write_compute(
        self,
        name: str,
        special: Sections,
        programs: environment.Environment = environment.HERE,
    ) -> Path:
        """Write the configuration file of one nova-compute.

        Each has its own state directory, which holds the node's identity.

        :param special: options of this nova-compute alone.
        :param programs: environment that it runs from.
        """
        state = self.root / name
        (state / 'instances').mkdir(parents=True, exist_ok=True)
        helper = programs.program('privsep-helper')
        path = self.etc / f'{name}.conf'
        privsep = {
            'helper_command': shlex.join(
                (str(helper), '--config-file', str(path))
            ),
        }
        return write(
            path,
            self.nova_common(),
            {
                'DEFAULT': {
                    'state_path': state,
                    'instances_path': state / 'instances',
                    'reserved_host_memory_mb': 0,
                    'reserved_host_disk_mb': 0,
                    'initial_cpu_allocation_ratio': 8.0,
                    'update_resources_interval': 20,
                    'resume_guests_state_on_host_boot': False,
                    'vif_plugging_timeout': 120,
                },
                'oslo_concurrency': {'lock_path': state / 'lock'},
                'nova_sys_admin': privsep,
                'vif_plug_ovs_privileged': privsep,
            },
            special,
        )


def libvirt_compute(uri: str, ovsdb: str) -> Sections:
    """Return the options of a nova-compute with real guests.

    :param uri: libvirt's URI.
    :param ovsdb: connection to the database of the host's Open vSwitch.
    """
    return {
        'os_vif_ovs': {'ovsdb_connection': ovsdb},
        'DEFAULT': {
            'compute_driver': 'libvirt.LibvirtDriver',
            'pointer_model': 'ps2mouse',
        },
        'libvirt': {
            'connection_uri': uri,
            'virt_type': 'qemu',
            'cpu_mode': 'none',
            'hw_machine_type': 'x86_64=pc',
            'mem_stats_period_seconds': 0,
            'inject_partition': -2,
            'images_type': 'raw',
        },
    }


def fake_compute(host: str) -> Sections:
    """Return the options of a nova-compute with Nova's fake driver."""
    return {
        'DEFAULT': {
            'host': host,
            'compute_driver': 'fake.MediumFakeDriver',
        },
    }
