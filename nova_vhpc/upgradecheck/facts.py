# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Read the facts about this host and its services for the upgrade checks."""

import importlib
import importlib.metadata
import logging
import os
import pkgutil
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from keystoneauth1 import adapter
from keystoneauth1 import exceptions as ks_exceptions
from oslo_config import cfg
from oslo_upgradecheck import upgradecheck

from nova_vhpc import conf as conf_package
from nova_vhpc.agent import health
from nova_vhpc.agent.daemon import status_socket
from nova_vhpc.clients import credentials, failures, neutron
from nova_vhpc.conf import nova_api, opts, unknown_options
from nova_vhpc.conf import placement as placement_conf
from nova_vhpc.conf import scheduler as scheduler_conf
from nova_vhpc.flavor import validation
from nova_vhpc.linux import cgroup, tick
from nova_vhpc.scheduler.sources import cost_table_file
from nova_vhpc.topology import model, neutron_segments
from nova_vhpc.upgradecheck import checks

LOG = logging.getLogger(__name__)

_HOOK = Path('/etc/libvirt/hooks/qemu.d/nova-vhpc')

_SIGNS = ('/dev/kvm', '/etc/libvirt')
"""Paths that only a compute host has; one that emulates has no /dev/kvm."""

_FLAVORS_VERSION = '2.61'
"""First microversion of Nova whose list of flavors has extra specs."""

_PLACEMENT_VERSION = '1.39'

_Summaries = Mapping[str, Mapping[str, Any]]
"""Provider summaries of Placement, by UUID of the provider."""

_Fact = TypeVar('_Fact')


class Checks(upgradecheck.UpgradeCommands):
    """The command ``nova-vhpc-status upgrade check``.

    :param conf: configuration; read when the checks run, not before.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf
        named_checks = (
            ('Nova version', Checks._check_nova),
            ('Options', Checks._check_options),
            ('Filter and weigher', Checks._check_scheduler),
            ('Placement', Checks._check_placement),
            ('libvirt', Checks._check_libvirt),
            ('libvirt hook', Checks._check_hook),
            ('cgroup controllers', Checks._check_cgroup),
            ('Tick and time slice', Checks._check_tick),
            ('Agent', Checks._check_agent),
            ('Claims and networks', Checks._check_claims),
            ('Flavors', Checks._check_flavors),
            ('Known traps', Checks._check_traps),
        )
        self._upgrade_checks = tuple(
            (name, _guarded(check)) for name, check in named_checks
        )

    def _check_nova(self) -> checks.Result:
        return checks.nova_version(_version('nova'))

    def _check_options(self) -> checks.Result:
        return checks.options(
            unknown_options.find(self._conf), _invalid_value(self._conf)
        )

    def _check_scheduler(self) -> checks.Result:
        if _version('nova') is None:
            return checks.success('nova is not installed here: agent only.')
        try:
            scheduler_conf.check(self._conf)
            cost_table_file.read(self._conf.vhpc_scheduler.cost_table)
        except (cfg.Error, ValueError) as error:
            return checks.failure(
                'nova-scheduler does not start with our filter: '
                f'{conf_package.reason(error)}'
            )
        options = self._conf.filter_scheduler
        return checks.scheduler(
            options,
            {name: options[name] for name in _multipliers(options)},
            self._conf.vhpc_scheduler.weight_multiplier,
        )

    def _check_placement(self) -> checks.Result:
        group = placement_conf.GROUP
        try:
            client = credentials.adapter(self._conf, group)
            hosts = _providers(
                client, f'required={model.TRAIT_HOST}', model.TRAIT_HOST
            )
            # Without hosts no stamp could be stale.
            markers = hosts and _providers(
                client, f'resources={model.STAMP}:1', model.STAMP
            )
            summaries = _summaries(client) if markers else {}
            unseen = 0
            if 'scheduler' in self._conf:
                unseen = _unseen_hosts(
                    client,
                    summaries,
                    self._conf.scheduler.max_placement_results,
                )
        except credentials.UnusableError as error:
            return checks.placement_away(str(error))
        except Exception as error:
            # keystoneauth raises many kinds.
            place = credentials.place(self._conf, group)
            return checks.placement_away(failures.reason(error, place, client))
        stamps = _stamps(markers, summaries)
        return checks.placement(
            len(hosts),
            stamps,
            time.time(),
            self._conf.vhpc_scheduler.topology_max_age,
            len(markers) - len(stamps),
            unseen,
        )

    def _check_libvirt(self) -> checks.Result:
        return _libvirt(
            self._conf.vhpc_agent.libvirt_uri, _version('nova') is not None
        )

    def _check_hook(self) -> checks.Result:
        return checks.libvirt_hook(*hook(_HOOK))

    def _check_cgroup(self) -> checks.Result:
        return checks.cgroup(
            cgroup.controllers(Path(self._conf.vhpc_agent.cgroup_root))
        )

    def _check_tick(self) -> checks.Result:
        try:
            from nova_vhpc.agent.actuators import libvirt_cputune
        except ImportError as error:
            # The check of libvirt tells whether the agent should be there.
            return checks.success(
                f'not checked, because the agent cannot be loaded ({error}).'
            )
        limits = libvirt_cputune.LibvirtCputuneActuator(self._conf).limits()
        return checks.tick(tick.tick_hz(), limits.effective_min_slice_us)

    def _check_agent(self) -> checks.Result:
        path = status_socket.socket_path(self._conf.vhpc_agent.run_path)
        try:
            judged = status_socket.fetch(path).get('health') or {}
            return checks.agent(
                judged.get('state', ''), health.sentences(judged)
            )
        except FileNotFoundError:
            return checks.agent_away(path, None)
        except (OSError, ValueError, LookupError, AttributeError) as error:
            return checks.agent_away(path, str(error))

    def _check_claims(self) -> checks.Result:
        return checks.networks(
            _asked(self._conf, 'network', _network_problems)
        )

    def _check_flavors(self) -> checks.Result:
        return checks.flavors(
            _asked(
                self._conf,
                'compute',
                lambda client: validation.problems_of_all(flavors(client)),
            )
        )

    def _check_traps(self) -> checks.Result:
        names = ('SQLAlchemy', 'placement')
        versions = {name: _version(name) for name in names}
        return checks.traps(
            {n: v for n, v in versions.items() if v is not None}
        )


def _libvirt(uri: str, has_nova: bool) -> checks.Result:
    """Check that libvirt answers, where the agent is to run.

    :param uri: ``[vhpc_agent] libvirt_uri``.
    :param has_nova: whether nova is installed in this Python, as on a
        controller.
    """
    try:
        import libvirt

        from nova_vhpc.agent.libvirt import connection
    except ImportError as error:
        if _is_compute_host():
            return checks.agent_not_installed(str(error))
        return checks.success('the agent is not installed, nor a hypervisor.')
    # Errors come as exceptions; libvirt would also print them to stderr,
    # in front of the table.
    libvirt.registerErrorHandler(lambda context, error: None, None)
    try:
        conn = connection.open_within(
            uri, connection.SILENCE_S, libvirt.openReadOnly
        )
    except libvirt.libvirtError as error:
        if has_nova and not _is_compute_host():
            return checks.success('no hypervisor here: scheduler only.')
        return checks.libvirt(None, str(error))
    try:
        return checks.libvirt(conn.getLibVersion())
    finally:
        conn.close()


def _is_compute_host() -> bool:
    return any(Path(path).exists() for path in _SIGNS)


def _asked(
    conf: cfg.ConfigOpts,
    service_type: str,
    read: Callable[[adapter.Adapter], _Fact],
) -> _Fact | None:
    """Return what is read from a service of OpenStack.

    The credentials are those of ``[placement]``, which nova.conf has: nothing
    else is configured on each host.

    :param service_type: type of the service in Keystone's catalogue.
    :param read: reads from it.
    :returns: None if the service did not answer, as if there is none.
    """
    try:
        placement = credentials.adapter(conf, placement_conf.GROUP)
        return read(
            adapter.Adapter(
                placement.session,
                service_type=service_type,
                interface=placement.interface,
                region_name=placement.region_name,
            )
        )
    except Exception as error:
        # keystoneauth raises many kinds, and answers may be a proxy's.
        LOG.debug('The %s service cannot be asked: %s', service_type, error)
        return None


def flavors(client: adapter.Adapter) -> dict[str, dict[str, str]]:
    """Return the extra specs of all flavors, by name."""
    found = {}
    params = {'is_public': 'None'}
    # Nova answers [api]max_limit flavors at a time.
    while page := client.get(
        '/flavors/detail', params=params, microversion=_FLAVORS_VERSION
    ).json()['flavors']:
        found.update({one['name']: one['extra_specs'] for one in page})
        params['marker'] = page[-1]['id']
    return found


def _network_problems(client: adapter.Adapter) -> list[str]:
    """Return a sentence for each network whose packets go astray."""

    def read(path: str) -> Any:
        return neutron.get(client, path)

    return neutron_segments.problems(
        neutron.pages(read, neutron_segments.NETWORKS, 'networks'),
        neutron_segments.mappings(
            neutron.pages(read, neutron_segments.AGENTS, 'agents')
        ),
    )


def _providers(
    client: adapter.Adapter, query: str, name: str
) -> list[dict[str, Any]]:
    """Return the resource providers with a trait or resource class of ours.

    Placement refuses an unknown name. The first agent that publishes creates
    it, so until then there are no such providers.

    :param query: query string for ``/resource_providers``.
    :param name: name of the trait or resource class.
    """
    try:
        found: list[dict[str, Any]] = client.get(
            f'/resource_providers?{query}', microversion=_PLACEMENT_VERSION
        ).json()['resource_providers']
    except ks_exceptions.BadRequest as error:
        # keystoneauth leaves Placement's message in the response.
        text = str(error)
        if error.response is not None:
            text += error.response.text
        if 'No such' not in text or name not in text:
            raise
        return []
    return found


def _summaries(client: adapter.Adapter) -> _Summaries:
    """Return the providers of all hosts that published, by one request.

    As the filter's bulk read: where Placement limits its answers, hosts are
    missing.
    """
    found: _Summaries = client.get(
        f'/allocation_candidates?resources={model.STAMP}:1',
        microversion=_PLACEMENT_VERSION,
    ).json()['provider_summaries']
    return found


def _stamps(
    markers: Sequence[Mapping[str, Any]], found: _Summaries
) -> dict[str, int]:
    """Return the stamps of marker providers by host."""
    return {
        marker['name'].removesuffix(':vhpc'): found[marker['uuid']][
            'resources'
        ][model.STAMP]['capacity']
        for marker in markers
        if marker['uuid'] in found
    }


def _unseen_hosts(
    client: adapter.Adapter, found: _Summaries, limit: int
) -> int:
    """Return how many hosts with free uplinks a limited answer leaves out.

    Placement is asked only if there are more free uplinks than the limit.

    :param limit: ``[scheduler] max_placement_results``.
    """
    free = []
    for summary in found.values():
        slots = summary['resources'].get(model.UPLINK)
        if slots and slots['capacity'] > slots['used']:
            free.append(summary['root_provider_uuid'])
    if len(free) <= limit:
        return 0
    candidates = client.get(
        f'/allocation_candidates?resources{model.RESOURCE_GROUP}='
        f'{model.UPLINK}:1&limit={limit}',
        microversion=_PLACEMENT_VERSION,
    ).json()['allocation_requests']
    seen = {
        found[uuid]['root_provider_uuid']
        for candidate in candidates
        for uuid in candidate['allocations']
        if uuid in found
    }
    return len(set(free) - seen)


def _multipliers(options: Mapping[str, Any]) -> list[str]:
    """Return the options by which Nova's weighers compete with the plan.

    Without the two that keep servers off a failing host and in their cell: a
    plan must not outweigh these.
    """
    return [
        name
        for name in options
        if name.endswith('_weight_multiplier')
        and not name.startswith(('build_failure_', 'cross_cell_move_'))
    ]


def _guarded(
    check: Callable[[Checks], checks.Result],
) -> Callable[[Checks], checks.Result]:
    """Return the check, failing for an unreadable value instead of raising.

    So the other checks still run.
    """

    def guarded(self: Checks) -> checks.Result:
        try:
            return check(self)
        except (cfg.Error, RecursionError) as error:
            return checks.failure(
                'an option that this check needs cannot be read: '
                f'{conf_package.plain(str(error))}; a dollar sign in a value '
                'is written $$'
            )

    return guarded


def _invalid_value(conf: cfg.ConfigOpts) -> str | None:
    """Return the first invalid value of our options, and why it is invalid.

    Options of nova-scheduler are left to the check of filter and weigher.

    :param conf: configuration whose files are checked.
    """
    modules = [
        importlib.import_module(f'{conf_package.__name__}.{module.name}')
        for module in pkgutil.iter_modules(conf_package.__path__)
        if module.name not in (*opts.HELPERS, 'scheduler')
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
        return conf_package.reason(error)
    return None


def hook(script: Path) -> tuple[str | None, bool]:
    """Return the program of an installed hook, and whether both can run.

    :param script: path of the hook script.
    :returns: the program, or None if there is no script; and whether script
        and program are executable.
    """
    try:
        match = re.search(r'^hook=(\S+)$', script.read_text(), re.MULTILINE)
    except (OSError, ValueError):
        return None, False
    if match is None:
        # Not our script.
        return str(script), os.access(script, os.X_OK)
    return match[1], os.access(script, os.X_OK) and os.access(
        match[1], os.X_OK
    )


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
