# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Reads this host and its services for the upgrade checks."""

import importlib
import importlib.metadata
import os
import pkgutil
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from keystoneauth1 import adapter, loading
from keystoneauth1 import exceptions as ks_exceptions
from oslo_config import cfg
from oslo_upgradecheck import upgradecheck

from nova_vhpc import conf as conf_package
from nova_vhpc.clients import credentials
from nova_vhpc.conf import nova_api, opts, unknown_options
from nova_vhpc.conf import placement as placement_conf
from nova_vhpc.conf import scheduler as scheduler_conf
from nova_vhpc.linux import cgroup, tick
from nova_vhpc.topology import model
from nova_vhpc.upgradecheck import checks

_MICROVERSION = '1.39'

_HOOK = Path('/etc/libvirt/hooks/qemu.d/nova-vhpc')

_SIGNS = ('/dev/kvm', '/etc/libvirt')
"""Signs of a compute host; one that emulates has no /dev/kvm."""


class Checks(upgradecheck.UpgradeCommands):
    """``nova-vhpc-status upgrade check``.

    :param conf: filled when the checks run, not before.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf
        found = (
            ('Nova version', Checks._check_nova),
            ('Options', Checks._check_options),
            ('Filter and weigher', Checks._check_scheduler),
            ('Placement', Checks._check_placement),
            ('libvirt', Checks._check_libvirt),
            ('libvirt hook', Checks._check_hook),
            ('cgroup controllers', Checks._check_cgroup),
            ('Tick and time slice', Checks._check_tick),
            ('Known traps', Checks._check_traps),
        )
        self._upgrade_checks = tuple(
            (name, _guarded(check)) for name, check in found
        )

    def _check_nova(self) -> checks.Result:
        return checks.nova_version(_version('nova'))

    def _check_options(self) -> checks.Result:
        return checks.options(
            unknown_options.find(self._conf), _wrong_value(self._conf)
        )

    def _check_scheduler(self) -> checks.Result:
        if _version('nova') is None:
            return checks.scheduler(None, (), ())
        try:
            scheduler_conf.check(self._conf)
        except (cfg.Error, ValueError) as error:
            return checks.failure(
                f'nova-scheduler will not start with our filter: {error}'
            )
        options = self._conf.filter_scheduler
        return checks.scheduler(
            options.available_filters,
            options.enabled_filters,
            options.weight_classes,
        )

    def _check_placement(self) -> checks.Result:
        group = placement_conf.GROUP
        try:
            session = loading.load_session_from_conf_options(
                self._conf, group, auth=credentials.load(self._conf, group)
            )
            client = loading.load_adapter_from_conf_options(
                self._conf, group, session=session
            )
            hosts = _providers(
                client, f'required={model.TRAIT_HOST}', model.TRAIT_HOST
            )
            # Without hosts there is nothing that could be stale.
            markers = hosts and _providers(
                client, f'resources={model.STAMP}:1', model.STAMP
            )
            stamps = _stamps(client, markers) if markers else {}
        except Exception as error:
            # keystoneauth's are of many kinds: a bare one for a password
            # that is not there, an OSError for a file of certificates.
            return checks.placement_away(str(error) or type(error).__name__)
        return checks.placement(
            len(hosts),
            stamps,
            time.time(),
            self._conf.vhpc_scheduler.topology_max_age,
        )

    def _check_libvirt(self) -> checks.Result:
        try:
            import libvirt

            from nova_vhpc.agent.libvirt import connection
        except ImportError as error:
            return checks.libvirt(None, str(error))
        # Errors come as exceptions; libvirt's own print would stand before
        # the table.
        libvirt.registerErrorHandler(lambda context, error: None, None)
        try:
            conn = connection.open_within(
                self._conf.vhpc_agent.libvirt_uri,
                connection.SILENCE_S,
                libvirt.openReadOnly,
            )
        except libvirt.libvirtError as error:
            if _version('nova') is not None and not any(
                Path(path).exists() for path in _SIGNS
            ):
                return checks.success('no hypervisor here: scheduler only.')
            return checks.libvirt(None, str(error))
        try:
            return checks.libvirt(conn.getLibVersion())
        finally:
            conn.close()

    def _check_hook(self) -> checks.Result:
        return checks.libvirt_hook(*hook(_HOOK))

    def _check_cgroup(self) -> checks.Result:
        return checks.cgroup(
            cgroup.controllers(Path(self._conf.vhpc_agent.cgroup_root))
        )

    def _check_tick(self) -> checks.Result:
        from nova_vhpc.agent.actuators import libvirt_cputune

        limits = libvirt_cputune.LibvirtCputuneActuator(self._conf).limits()
        return checks.tick(tick.tick_hz(), limits.effective_min_slice_us)

    def _check_traps(self) -> checks.Result:
        names = ('SQLAlchemy', 'placement')
        found = {name: _version(name) for name in names}
        return checks.traps({n: v for n, v in found.items() if v is not None})


def _guarded(
    check: Callable[[Checks], checks.Result],
) -> Callable[[Checks], checks.Result]:
    """A check that fails for a value that nobody can read; others go on."""

    def guarded(self: Checks) -> checks.Result:
        try:
            return check(self)
        except (cfg.Error, RecursionError) as error:
            return checks.failure(
                f'a value that is needed here cannot be read: {error}; a '
                'dollar sign in a value is written $$'
            )

    return guarded


def _wrong_value(conf: cfg.ConfigOpts) -> str | None:
    """The first value of ours that is wrong, and why.

    nova-scheduler's are looked at where filter and weigher are.

    :param conf: its files are looked at.
    """
    modules = [
        importlib.import_module(f'{conf_package.__name__}.{found.name}')
        for found in pkgutil.iter_modules(conf_package.__path__)
        if found.name not in (*opts.HELPERS, 'scheduler')
    ]
    ours = cfg.ConfigOpts()
    for module in modules:
        module.register_opts(ours)
    try:
        ours(
            [],
            project='nova-vhpc',
            default_config_files=conf.config_file,
            default_config_dirs=conf.config_dir,
        )
        for module in modules:
            conf_package.check(ours, module.list_opts())
        credentials.check(ours, (nova_api.GROUP, placement_conf.GROUP))
    except (cfg.Error, ValueError) as error:
        return ' '.join(str(error).split())
    return None


def hook(script: Path) -> tuple[str | None, bool]:
    """The program that an installed hook calls, and whether both can be run.

    :param script: where libvirt looks for it.
    """
    try:
        found = re.search(r'^hook=(\S+)$', script.read_text(), re.MULTILINE)
    except (OSError, ValueError):
        return None, False
    if found is None:
        # Somebody's own.
        return str(script), os.access(script, os.X_OK)
    return found[1], os.access(script, os.X_OK) and os.access(
        found[1], os.X_OK
    )


def _providers(
    client: adapter.Adapter, query: str, name: str
) -> list[dict[str, Any]]:
    """Resource providers with a trait or resource class of ours.

    :param name: of it. Placement refuses one that it does not know, and
        the first agent that publishes makes it known: until then there
        are none.
    """
    try:
        found: list[dict[str, Any]] = client.get(
            f'/resource_providers?{query}', microversion=_MICROVERSION
        ).json()['resource_providers']
    except ks_exceptions.BadRequest as error:
        # keystoneauth leaves Placement's own words in the response.
        words = str(error)
        if error.response is not None:
            words += error.response.text
        if 'No such' not in words or name not in words:
            raise
        return []
    return found


def _stamps(
    client: adapter.Adapter, markers: list[dict[str, Any]]
) -> dict[str, int]:
    """What marker providers say, by host: one read, however many they are."""
    summaries = client.get(
        f'/allocation_candidates?resources={model.STAMP}:1',
        microversion=_MICROVERSION,
    ).json()['provider_summaries']
    return {
        marker['name'].removesuffix(':vhpc'): summaries[marker['uuid']][
            'resources'
        ][model.STAMP]['capacity']
        for marker in markers
        # It may have gone since.
        if marker['uuid'] in summaries
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
