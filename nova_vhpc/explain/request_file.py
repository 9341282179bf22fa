# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Read the REQUEST.json of ``nova-vhpc-explain``.

``request_schema.json`` beside this module is its JSON schema, which
``doc/source/admin/explain.rst`` shows.
"""

import collections
import dataclasses
import functools
import importlib.resources
import ipaddress
import json
import math
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

from nova_vhpc.conf.types import overcommit_limits
from nova_vhpc.explain import member_ports, model
from nova_vhpc.flavor import (
    cpu_policy,
    extra_specs,
    pci_aliases,
    validation,
)
from nova_vhpc.scheduler.hosts.requirements import (
    HostView,
    Limits,
    of_flavor,
)
from nova_vhpc.scheduler.planner.cost_table import PAPER, CostTable
from nova_vhpc.scheduler.planner.model import HostFacts
from nova_vhpc.scheduler.session.assembly import Cluster
from nova_vhpc.scheduler.sources import neutron_uplink
from nova_vhpc.scheduler.sources.neutron_uplink import NeutronUplink
from nova_vhpc.scheduler.sources.snapshot import HostUplinks, UplinkState
from nova_vhpc.topology.model import BridgeKind, physnet_trait, provider_uuid

_HALF = re.compile(r'[\ud800-\udfff]')
"""Half of a surrogate pair: JSON's escapes allow it, but UTF-8 does not."""

MOST_MEMBERS = extra_specs.BY_NAME['members'].maximum or 0
"""Most members of a cluster of which some are to come."""

_MOST_CHARACTERS = 400
"""Most characters of the message on a wrong value, which it contains."""


_OPTIONS = {
    'spare_cpus': 'spare_cpus',
    'topology_max_age': 'topology_max_age_s',
    'weight_of_unknown': 'weight_of_unknown',
    'weight_multiplier': 'weight_multiplier',
}
"""Fields of :class:`Options` by the name of the option."""


class RequestError(ValueError):
    """The request cannot be read; the message names place and problem."""


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """The options of ``[vhpc_scheduler]`` that an explanation depends on."""

    spare_cpus: int = 0
    max_overcommit: Mapping[str, float] = dataclasses.field(
        default_factory=lambda: {'openmp': 1.0, 'hybrid': 1.0}
    )
    allow_unknown: bool = False
    topology_max_age_s: int = 1200
    weight_of_unknown: float = -1.0
    weight_multiplier: float = 20.0
    costs: CostTable = PAPER


@dataclasses.dataclass(frozen=True, slots=True)
class Flavor:
    """The part of a flavor that an explanation depends on.

    :ivar vcpus: number of vCPUs.
    :ivar ram_mb: RAM in MB.
    :ivar extra_specs: all extra specs.
    :ivar disk_gb: root disk, ephemeral disk and swap, in GB.
    :ivar name: name of the flavor, or None.
    """

    vcpus: int
    ram_mb: int
    extra_specs: Mapping[str, str]
    disk_gb: int = 0
    name: str | None = None

    @property
    def pinned(self) -> bool:
        """Whether all vCPUs get a dedicated CPU each."""
        return self.checked_vcpus[1]

    @property
    def checked_vcpus(self) -> tuple[int, bool]:
        """Number of vCPUs that filter and planner check; whether dedicated.

        Of a flavor with both kinds, the vCPUs that share CPUs are checked. If
        all have dedicated CPUs, that of the emulator threads counts, too.
        """
        dedicated = cpu_policy.dedicated(self.vcpus, self.extra_specs)
        shared = self.vcpus - dedicated
        if shared > 0:
            return shared, False
        emulator_cpus = cpu_policy.emulator_cpus(dedicated, self.extra_specs)
        return dedicated + emulator_cpus, True


@dataclasses.dataclass(frozen=True, slots=True)
class ExplainRequest:
    """A request to explain, without the hosts.

    :ivar flavor: the flavor, None if it must be looked up.
    :ivar flavor_name: name or ID of a flavor to look up, or None.
    :ivar members: number of members to place now.
    :ivar group_name: name or ID of a server group to look up, or None.
    :ivar policy: policy of the server group, None without a group.
    :ivar max_server_per_host: rule of the policy ``anti-affinity``, or None.
    :ivar existing: number of running members by host name.
    :ivar running_members: UUIDs of these members.
    :ivar unlocated: number of members of which Nova does not tell whether and
        where they run.
    :ivar running_rails: number of them by rail, by host name, as far as known.
    :ivar cluster_members: number of members that the cluster will have, as in
        the scheduler hint ``vhpc_members``; None if there is no hint.
    :ivar devices: number of PCI devices of one member's ports.
    :ivar ports: ports of one member on provider networks.
    :ivar tunneled: whether one member has a port on a tunneled network.
    :ivar options: options of ``[vhpc_scheduler]``.
    """

    flavor: Flavor | None = None
    flavor_name: str | None = None
    members: int = 1
    group_name: str | None = None
    policy: str | None = None
    max_server_per_host: int | None = None
    existing: Mapping[str, int] = dataclasses.field(default_factory=dict)
    running_members: tuple[str, ...] = ()
    unlocated: int = 0
    running_rails: Mapping[str, Mapping[str, int]] = dataclasses.field(
        default_factory=dict
    )
    cluster_members: int | None = None
    devices: int = 0
    ports: tuple[member_ports.Port, ...] = ()
    tunneled: bool = False
    options: Options = dataclasses.field(default_factory=Options)

    def question(
        self, hosts: tuple[model.Host, ...], now_s: float | None = None
    ) -> model.Question:
        """Return the question for :func:`explain.explain`.

        :param now_s: present time in seconds since the epoch; the clock's if
            None.
        """
        options = self.options
        flavor = self.flavor
        if flavor is None:
            raise RequestError('flavor: it has not been looked up')
        networks = member_ports.networks(self.ports, self.tunneled)
        if networks is not None:
            networks = networks.with_encap_ips(_has_encap_ips(hosts))
        requirements = of_flavor(
            flavor.extra_specs,
            flavor.checked_vcpus[0],
            self.devices + pci_aliases.devices(flavor.extra_specs),
            options.spare_cpus,
            options.max_overcommit,
            member_ports.requests(self.ports),
            networks,
        )
        if self.cluster_members is not None:
            if self.policy is None:
                raise RequestError('cluster_members: needs a server group')
            if self.cluster_members > MOST_MEMBERS:
                raise RequestError(
                    f'cluster_members: {self.cluster_members} is more than '
                    f'{MOST_MEMBERS}, nova-scheduler would ignore it'
                )
        size = self.cluster_members or requirements.specs.members or 0
        known = self.members + sum(self.existing.values()) + self.unlocated
        # Without a server group, the scheduler does not know the others.
        expected = max(0, size - known) if self.policy else 0
        return model.Question(
            cluster=Cluster(
                requirements,
                flavor.ram_mb,
                self.members + expected,
                expected,
                self.existing,
                self.policy,
                self.max_server_per_host,
                options.costs,
                self.running_rails if requirements.rails_matter else {},
            ),
            hosts=hosts,
            limits=Limits(
                now_minutes=(time.time() if now_s is None else now_s) / 60,
                max_age_s=options.topology_max_age_s,
                allow_unknown=options.allow_unknown,
            ),
            weight_of_unknown=options.weight_of_unknown,
            multiplier=options.weight_multiplier,
            unlocated=self.unlocated,
            flaws=tuple(validation.problems(flavor.extra_specs)),
        )


def read(
    document: Any, now_s: float | None = None
) -> tuple[ExplainRequest, tuple[model.Host, ...] | None]:
    """Read a REQUEST.json.

    :param document: the decoded JSON document.
    :param now_s: present time in seconds since the epoch, from which the age
        of published uplinks counts; the clock's if None.
    :returns: the request, and its hosts or None if they must be read from
        the cloud.
    :raises RequestError: the document is invalid; the message names the place
        and the value.
    """
    _check(document)
    flavor = document['flavor']
    request = ExplainRequest(
        flavor=None if isinstance(flavor, str) else _flavor(flavor),
        flavor_name=flavor if isinstance(flavor, str) else None,
        members=document.get('members', 1),
        cluster_members=document.get('cluster_members'),
        devices=document.get('devices', 0),
        ports=tuple(
            member_ports.Port(**port) for port in document.get('ports') or ()
        ),
        tunneled=document.get('tunneled', False),
        options=_options(document.get('options', {})),
    )
    group = document.get('group')
    if isinstance(group, str):
        request = dataclasses.replace(request, group_name=group)
    elif group is not None:
        request = dataclasses.replace(
            request,
            policy=group.get('policy'),
            max_server_per_host=group.get('max_server_per_host'),
            existing=group.get('existing', {}),
            running_rails={
                host: {
                    _subnet(f'request.group.rails.{host}', rail): count
                    for rail, count in rails.items()
                }
                for host, rails in group.get('rails', {}).items()
            },
        )
    if document.get('hosts') is None:
        return request, None
    now_s = time.time() if now_s is None else now_s
    hosts = tuple(
        _host(values, f'request.hosts[{number}]', now_s)
        for number, values in enumerate(document['hosts'])
    )
    _reject_duplicates('request.hosts', (host.facts.name for host in hosts))
    return request, hosts


def _check(document: Any) -> None:
    """Raise RequestError if the schema does not allow a document."""
    # The commands that need no request start 0.1 s earlier without it.
    from jsonschema import exceptions

    error = exceptions.best_match(_validator().iter_errors(document))
    if error is not None:
        where = ''.join(
            f'[{step}]' if isinstance(step, int) else '.' + ascii(step)[1:-1]
            for step in error.absolute_path
        )
        message = error.message
        if len(message) > _MOST_CHARACTERS:
            half = _MOST_CHARACTERS // 2
            message = f'{message[:half]} ... {message[-half:]}'
        raise RequestError(f'request{where}: {message}')


@functools.cache
def _validator() -> Any:
    """Return the validator of the schema.

    Python's JSON accepts NaN and, as infinity, 1e999.
    """
    import jsonschema

    base = jsonschema.Draft202012Validator
    types = base.TYPE_CHECKER.redefine_many(
        {
            'string': lambda _, value: (
                isinstance(value, str) and not _HALF.search(value)
            ),
            'integer': lambda _, value: (
                isinstance(value, int) and not isinstance(value, bool)
            ),
            'number': lambda _, value: (
                (isinstance(value, int) and not isinstance(value, bool))
                or (isinstance(value, float) and math.isfinite(value))
            ),
        }
    )
    schema = importlib.resources.files('nova_vhpc.explain').joinpath(
        'request_schema.json'
    )
    return jsonschema.validators.extend(base, type_checker=types)(
        json.loads(schema.read_text('utf-8'))
    )


def _flavor(values: Mapping[str, Any]) -> Flavor:
    given = values.get('extra_specs', {})
    return Flavor(
        vcpus=values['vcpus'],
        ram_mb=values.get('ram_mb', 0),
        disk_gb=values.get('disk_gb', 0),
        name=values.get('name'),
        extra_specs={name: str(value) for name, value in given.items()},
    )


def _options(values: Mapping[str, Any]) -> Options:
    given = {
        field: values[key] for key, field in _OPTIONS.items() if key in values
    }
    if 'max_overcommit' in values:
        try:
            given['max_overcommit'] = overcommit_limits(
                values['max_overcommit']
            )
        except ValueError as error:
            raise RequestError(
                f'request.options.max_overcommit: {error}'
            ) from None
    return Options(
        allow_unknown=values.get('unknown_topology') == 'allow', **given
    )


def _host(values: Mapping[str, Any], where: str, now_s: float) -> model.Host:
    name, cpus = values['name'], values['cpus']
    used_vcpus = values.get('used_vcpus', 0)
    age = values.get('published_minutes_ago')
    topology = None
    if values.get('uplinks') is not None:
        uplinks = tuple(
            _uplink(uplink, f'{where}.uplinks[{number}]', name)
            for number, uplink in enumerate(values['uplinks'])
        )
        # Bridge and NIC are the name of the uplink's resource provider.
        _reject_duplicates(f'{where}.uplinks', map(str, uplinks))
        topology = HostUplinks(
            uplinks,
            # Without a stamp, published uplinks are never stale.
            None if age is None else int(now_s // 60) - age,
            neutron_uplinks=tuple(
                map(_neutron_uplink, values.get('neutron_uplinks') or ())
            ),
        )
    return model.Host(
        facts=HostFacts(
            name,
            cpus,
            used_vcpus,
            cpus * values.get('cpu_allocation_ratio', 1.0) - used_vcpus,
            values.get('free_ram_mb', 1e9),
            switch=values.get('switch'),
            rack=values.get('rack'),
        ),
        view=HostView(cpus, used_vcpus, topology),
        nova_reason=values.get('nova_lack'),
        devices=values.get('devices'),
        multiplier=values.get('weight_multiplier'),
    )


def _uplink(values: Mapping[str, Any], where: str, host: str) -> UplinkState:
    bridge, nic = values['bridge'], values.get('nic', '?')
    up = values.get('up', True)
    rail = values.get('rail')
    return UplinkState(
        uuid=provider_uuid(host, bridge, nic),
        kind=BridgeKind(values['kind']),
        bridge=bridge,
        nic=nic,
        # The agent publishes a dead link with speed and slots 0.
        mbps=values.get('mbps', 1000) if up else 0,
        slots=values.get('slots', 1) if up else 0,
        used=values.get('used', 0),
        physnets=frozenset(map(physnet_trait, values.get('physnets', ()))),
        tunnel=values.get('tunnel', rail is not None),
        bond=values.get('bond', False),
        rail='' if rail is None else _subnet(f'{where}.rail', rail),
    )


def _neutron_uplink(values: Mapping[str, Any]) -> NeutronUplink:
    bandwidth = neutron_uplink.Bandwidth(values['kbps'], values.get('used', 0))
    return NeutronUplink(
        values['device'],
        values['device'],
        frozenset(
            [
                physnet_trait(values['physnet']),
                neutron_uplink.VNIC_TYPE + 'NORMAL',
            ]
        ),
        dict.fromkeys(neutron_uplink.DIRECTIONS, bandwidth),
    )


def _subnet(where: str, rail: str) -> str:
    try:
        return str(ipaddress.ip_network(rail))
    except ValueError:
        raise RequestError(
            f'{where}: {rail!r} is no subnet such as 10.1.0.0/24'
        ) from None


def _reject_duplicates(where: str, names: Iterable[str]) -> None:
    duplicates = [
        name for name, count in collections.Counter(names).items() if count > 1
    ]
    if duplicates:
        raise RequestError(
            f'{where}: more than one {", ".join(sorted(duplicates))}'
        )


def _has_encap_ips(hosts: Iterable[model.Host]) -> bool:
    """Return whether any host has an uplink with an encap IP of OVN."""
    return any(
        uplink.tunnel
        for host in hosts
        if host.view.topology is not None
        for uplink in host.view.topology.uplinks
    )
