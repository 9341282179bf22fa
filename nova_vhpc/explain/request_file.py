# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Read the REQUEST.json of ``nova-vhpc-explain``.

Pure. ``doc/source/admin/explain.rst`` describes the schema. Every error names
the place in the file, the value there and what is allowed.
"""

import collections
import dataclasses
import ipaddress
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
from nova_vhpc.scheduler.planner.cost import PAPER, CostTable
from nova_vhpc.scheduler.planner.model import HostFacts, Policy
from nova_vhpc.scheduler.sources import neutron_uplink
from nova_vhpc.scheduler.sources.neutron_uplink import NeutronUplink
from nova_vhpc.scheduler.sources.snapshot import HostUplinks, UplinkState
from nova_vhpc.topology.model import BridgeKind, physnet_trait, provider_uuid

_MISSING: Any = object()

_HALF = re.compile(r'[\ud800-\udfff]')
"""Half of a surrogate pair: JSON's escapes allow it, but UTF-8 does not."""

MOST = 10**12
"""Largest allowed number: more than any host has of anything."""

MOST_VCPUS = 10**6
"""Most vCPUs of a flavor: more than any guest has, and few enough to list in
a CPU mask."""

MOST_MEMBERS = extra_specs.BY_NAME['members'].maximum or 0
"""Most members of a cluster of which some are to come."""

MOST_CHARACTERS = 255
"""Most characters in the value of an extra spec, as in Nova."""


class RequestError(ValueError):
    """The request cannot be read; the message names place and problem."""


class ObjectReader:
    """Reads the values of one JSON object of the request.

    :param values: the decoded object.
    :param where: place of the object in the request, for messages.
    :raises RequestError: from every method; the message names place and value.
    """

    def __init__(self, values: Any, where: str) -> None:
        if not isinstance(values, Mapping):
            raise RequestError(f'{where}: must be an object')
        for key, value in values.items():
            for text in (key, value):
                if isinstance(text, str) and _HALF.search(text):
                    raise RequestError(
                        f'{where}.{ascii(key)[1:-1]}: {text!a} is no text: '
                        'half of a surrogate pair'
                    )
        self.values: Mapping[str, Any] = values
        self.where = where
        self._read_keys: set[str] = set()

    def get(self, key: str, default: Any = _MISSING) -> Any:
        """Return a value without checking its type."""
        self._read_keys.add(key)
        value = self.values.get(key, default)
        if value is _MISSING:
            raise RequestError(f'{self.where}: {key} is missing')
        return value

    def error(self, key: str, problem: str) -> RequestError:
        """Return the error that names a value's place and its problem."""
        return RequestError(f'{self.where}.{key}: {problem}')

    def child(self, key: str) -> 'ObjectReader':
        """Return the reader of an inner object; of an empty one if missing."""
        return ObjectReader(self.get(key, {}), f'{self.where}.{key}')

    def children(self, key: str) -> list['ObjectReader']:
        """Return the readers of the objects in a list."""
        items = self.get(key)
        if not isinstance(items, list):
            raise self.error(key, 'must be a list')
        return [
            ObjectReader(item, f'{self.where}.{key}[{number}]')
            for number, item in enumerate(items)
        ]

    def integer(
        self,
        key: str,
        default: Any = _MISSING,
        least: int = 0,
        most: int = MOST,
    ) -> int:
        """Return an integer from ``least`` to ``most``."""
        value = self.get(key, default)
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or value < least
        ):
            raise self.error(key, f'{value!r} is no integer >= {least}')
        if value > most:
            raise self.error(key, f'must be {most} at most')
        return value

    def optional(self, key: str, least: int = 0) -> int | None:
        """Return an integer, or None if it is null or missing."""
        if self.get(key, None) is None:
            return None
        return self.integer(key, least=least)

    def number(self, key: str, default: float, least: int = -MOST) -> float:
        """Return a number from ``least`` to :data:`MOST`."""
        value = self.get(key, default)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            # Python's JSON accepts NaN and, as infinity, 1e999.
            or not least <= value <= MOST
        ):
            start = f'from {least}' if least > -MOST else 'up'
            raise self.error(key, f'{value!r} is no number {start} to {MOST}')
        return float(value)

    def text(self, key: str, default: Any = _MISSING) -> Any:
        """Return a text, or the default if it is missing."""
        value = self.get(key, default)
        if value is None and default is None:
            return None
        if not isinstance(value, str):
            raise self.error(key, f'{value!r} is no text')
        return value

    def texts(self, key: str) -> list[str]:
        """Return a list of texts, empty if it is missing."""
        values = self.get(key, [])
        if not isinstance(values, list) or not all(
            isinstance(value, str) and value for value in values
        ):
            raise self.error(key, 'must be a list of texts')
        return values

    def boolean(self, key: str, default: bool) -> bool:
        """Return true or false; no text or number counts as one."""
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise self.error(key, f'{value!r} is neither true nor false')
        return value

    def choice(
        self, key: str, choices: tuple[str, ...], default: Any = _MISSING
    ) -> Any:
        """Return one of some words."""
        value = self.get(key, default)
        if value is not default and value not in choices:
            allowed = ', '.join(choices)
            raise self.error(key, f'{value!r} is not one of: {allowed}')
        return value

    def reject_unknown_keys(self) -> None:
        """Raise RequestError if there are keys that no call has read."""
        unknown = sorted(set(self.values) - self._read_keys)
        if unknown:
            raise RequestError(
                f'{self.where}: unknown key(s) {", ".join(unknown)}; known '
                'are: ' + ', '.join(sorted(self._read_keys))
            )


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
        known = self.members + sum(self.existing.values())
        return model.Question(
            requirements=requirements,
            members=self.members,
            ram_mb=flavor.ram_mb,
            hosts=hosts,
            policy=self.policy,
            max_server_per_host=self.max_server_per_host,
            existing=self.existing,
            running_rails=self.running_rails,
            limits=Limits(
                now_minutes=(time.time() if now_s is None else now_s) / 60,
                max_age_s=options.topology_max_age_s,
                allow_unknown=options.allow_unknown,
            ),
            weight_of_unknown=options.weight_of_unknown,
            costs=options.costs,
            multiplier=options.weight_multiplier,
            flaws=tuple(validation.problems(flavor.extra_specs)),
            # Without a server group, the scheduler does not know the others.
            expected=max(0, size - known) if self.policy else 0,
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
    :raises RequestError: the document is invalid.
    """
    now_s = time.time() if now_s is None else now_s
    top = ObjectReader(document, 'request')
    flavor = top.get('flavor')
    request = ExplainRequest(
        flavor=None if isinstance(flavor, str) else _flavor(flavor),
        flavor_name=flavor if isinstance(flavor, str) else None,
        members=top.integer('members', 1, least=1),
        cluster_members=(
            None
            if top.get('cluster_members', None) is None
            else top.integer('cluster_members', least=1)
        ),
        devices=top.integer('devices', 0),
        ports=(
            ()
            if top.get('ports', None) is None
            else tuple(map(_port, top.children('ports')))
        ),
        tunneled=top.boolean('tunneled', False),
        options=_options(top.child('options')),
    )
    group = top.get('group', None)
    if isinstance(group, str):
        request = dataclasses.replace(request, group_name=group)
    elif group is not None:
        reader = top.child('group')
        running = reader.child('existing')
        request = dataclasses.replace(
            request,
            policy=reader.choice('policy', tuple(map(str, Policy)), None),
            max_server_per_host=reader.optional(
                'max_server_per_host', least=1
            ),
            existing={name: running.integer(name) for name in running.values},
            running_rails=_running_rails(reader.child('rails')),
        )
        reader.reject_unknown_keys()
    hosts = None
    if top.get('hosts', None) is not None:
        hosts = tuple(_host(reader, now_s) for reader in top.children('hosts'))
        _reject_duplicates(
            'request.hosts', (host.facts.name for host in hosts)
        )
    top.reject_unknown_keys()
    return request, hosts


def _has_encap_ips(hosts: Iterable[model.Host]) -> bool:
    """Return whether any host has an uplink with an encap IP of OVN."""
    return any(
        uplink.tunnel
        for host in hosts
        if host.view.topology is not None
        for uplink in host.view.topology.uplinks
    )


def _reject_duplicates(where: str, names: Iterable[str]) -> None:
    duplicates = [
        name for name, count in collections.Counter(names).items() if count > 1
    ]
    if duplicates:
        raise RequestError(
            f'{where}: more than one {", ".join(sorted(duplicates))}'
        )


def _flavor(document: Any) -> Flavor:
    reader = ObjectReader(document, 'request.flavor')
    given = reader.child('extra_specs')
    specs = {name: str(value) for name, value in given.values.items()}
    for name, value in specs.items():
        if len(value) > MOST_CHARACTERS:
            raise given.error(
                name,
                f'has {len(value)} characters; Nova allows {MOST_CHARACTERS}',
            )
    flavor = Flavor(
        vcpus=reader.integer('vcpus', least=1, most=MOST_VCPUS),
        ram_mb=reader.integer('ram_mb', 0),
        disk_gb=reader.integer('disk_gb', 0),
        name=reader.text('name', None),
        extra_specs=specs,
    )
    reader.reject_unknown_keys()
    return flavor


def _port(reader: ObjectReader) -> member_ports.Port:
    port = member_ports.Port(reader.text('physnet'), reader.integer('kbps', 0))
    reader.reject_unknown_keys()
    return port


def _options(reader: ObjectReader) -> Options:
    default = Options()
    options = Options(
        spare_cpus=reader.integer('spare_cpus', default.spare_cpus),
        max_overcommit=(
            _overcommit(reader.child('max_overcommit'))
            if 'max_overcommit' in reader.values
            else default.max_overcommit
        ),
        allow_unknown=reader.choice(
            'unknown_topology', ('reject', 'allow'), 'reject'
        )
        == 'allow',
        topology_max_age_s=reader.integer(
            'topology_max_age', default.topology_max_age_s
        ),
        weight_of_unknown=reader.number(
            'weight_of_unknown', default.weight_of_unknown
        ),
        weight_multiplier=reader.number(
            'weight_multiplier', default.weight_multiplier, least=0
        ),
    )
    reader.reject_unknown_keys()
    return options


def _overcommit(reader: ObjectReader) -> Mapping[str, float]:
    try:
        return overcommit_limits(reader.values)
    except ValueError as error:
        raise RequestError(f'{reader.where}: {error}') from None


def _host(reader: ObjectReader, now_s: float) -> model.Host:
    name = reader.get('name')
    if not isinstance(name, str) or not name:
        raise reader.error('name', f'{name!r} is no name')
    cpus = reader.integer('cpus')
    used_vcpus = reader.integer('used_vcpus', 0)
    ratio = reader.number('cpu_allocation_ratio', 1.0)
    age = reader.optional('published_minutes_ago')
    topology = None
    if reader.get('uplinks', None) is not None:
        uplinks = [_uplink(item, name) for item in reader.children('uplinks')]
        # Bridge and NIC are the name of the uplink's resource provider.
        _reject_duplicates(f'{reader.where}.uplinks', map(str, uplinks))
        topology = HostUplinks(
            tuple(uplinks),
            # Without a stamp, published uplinks are never stale.
            None if age is None else int(now_s // 60) - age,
            neutron_uplinks=(
                ()
                if reader.get('neutron_uplinks', None) is None
                else tuple(
                    _neutron_uplink(item)
                    for item in reader.children('neutron_uplinks')
                )
            ),
        )
    host = model.Host(
        facts=HostFacts(
            name,
            cpus,
            used_vcpus,
            cpus * ratio - used_vcpus,
            reader.number('free_ram_mb', 1e9),
            switch=reader.text('switch', None),
            rack=reader.text('rack', None),
        ),
        view=HostView(cpus, used_vcpus, topology),
        nova_reason=reader.text('nova_lack', None),
        devices=reader.optional('devices'),
        multiplier=(
            None
            if reader.get('weight_multiplier', None) is None
            else reader.number('weight_multiplier', 0.0)
        ),
    )
    reader.reject_unknown_keys()
    return host


def _uplink(reader: ObjectReader, host: str) -> UplinkState:
    kind = reader.choice('kind', tuple(str(kind) for kind in BridgeKind))
    bridge, nic = reader.text('bridge'), reader.text('nic', '?')
    up = reader.boolean('up', True)
    mbps = reader.integer('mbps', 1000)
    slots = reader.integer('slots', 1)
    rail = _rail(reader)
    uplink = UplinkState(
        uuid=provider_uuid(host, bridge, nic),
        kind=BridgeKind(kind),
        bridge=bridge,
        nic=nic,
        # The agent publishes a dead link with speed and slots 0.
        mbps=mbps if up else 0,
        slots=slots if up else 0,
        used=reader.integer('used', 0),
        physnets=frozenset(map(physnet_trait, reader.texts('physnets'))),
        tunnel=reader.boolean('tunnel', rail is not None),
        bond=reader.boolean('bond', False),
        rail=rail,
    )
    reader.reject_unknown_keys()
    return uplink


def _rail(reader: ObjectReader) -> str | None:
    rail: str | None = reader.text('rail', None)
    return None if rail is None else _subnet(reader, 'rail', rail)


def _running_rails(reader: ObjectReader) -> Mapping[str, Mapping[str, int]]:
    return {
        host: {
            _subnet(of_host, rail, rail): of_host.integer(rail)
            for rail in of_host.values
        }
        for host in reader.values
        for of_host in [reader.child(host)]
    }


def _subnet(reader: ObjectReader, key: str, rail: str) -> str:
    try:
        return str(ipaddress.ip_network(rail))
    except ValueError:
        raise reader.error(
            key, f'{rail!r} is no subnet such as 10.1.0.0/24'
        ) from None


def _neutron_uplink(reader: ObjectReader) -> NeutronUplink:
    device = reader.text('device')
    total, used = reader.integer('kbps', least=1), reader.integer('used', 0)
    physnet = reader.text('physnet')
    reader.reject_unknown_keys()
    return NeutronUplink(
        device,
        device,
        frozenset(
            [
                physnet_trait(physnet),
                neutron_uplink.VNIC_TYPE + 'NORMAL',
            ]
        ),
        dict.fromkeys(
            neutron_uplink.DIRECTIONS, neutron_uplink.Bandwidth(total, used)
        ),
    )
