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


"""Reads the REQUEST.json of ``nova-vhpc-explain``.

Pure. The schema is told in ``doc/source/admin/explain.rst``. Every error
names the place in the file, what is there and what is wanted.
"""

import collections
import dataclasses
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

from nova_vhpc.conf.types import overcommit_limits
from nova_vhpc.explain import model
from nova_vhpc.flavor import cpu_policy, pci_aliases, validation
from nova_vhpc.scheduler.hosts.requirements import (
    HostView,
    Limits,
    of_flavor,
)
from nova_vhpc.scheduler.planner.model import HostFacts, Policy
from nova_vhpc.scheduler.sources.snapshot import HostUplinks, UplinkState
from nova_vhpc.topology.model import BridgeKind, provider_uuid

_MISSING: Any = object()

_HALF = re.compile(r'[\ud800-\udfff]')
"""Half of a pair, which JSON's escapes can say, but no text can hold."""

MOST = 10**12
"""Largest number that is taken: more than any host has of anything."""

MOST_VCPUS = 10**6
"""Of a flavor: far more than a guest has, and few enough to list in a mask."""

MOST_CHARACTERS = 255
"""Of an extra spec's value, as Nova has it."""


class RequestError(ValueError):
    """The request cannot be read; says where and what is wanted."""


class ObjectReader:
    """One object of the document.

    :param where: its place, for messages.
    :raises RequestError: from every method, naming place and value.
    """

    def __init__(self, values: Any, where: str) -> None:
        if not isinstance(values, Mapping):
            raise RequestError(f'{where}: wanted an object')
        for key, value in values.items():
            for text in (key, value):
                if isinstance(text, str) and _HALF.search(text):
                    raise RequestError(
                        f'{where}.{ascii(key)[1:-1]}: {text!a} is no text: '
                        'half of a surrogate pair'
                    )
        self.values: Mapping[str, Any] = values
        self.where = where
        self._taken: set[str] = set()

    def get(self, key: str, default: Any = _MISSING) -> Any:
        """A value as it stands there."""
        self._taken.add(key)
        value = self.values.get(key, default)
        if value is _MISSING:
            raise RequestError(f'{self.where}: {key} is missing')
        return value

    def child(self, key: str) -> 'ObjectReader':
        """An object within this one; an empty one if it is not there."""
        return ObjectReader(self.get(key, {}), f'{self.where}.{key}')

    def children(self, key: str) -> list['ObjectReader']:
        """The objects of a list."""
        listed = self.get(key)
        if not isinstance(listed, list):
            raise RequestError(f'{self.where}.{key}: wanted a list')
        return [
            ObjectReader(item, f'{self.where}.{key}[{number}]')
            for number, item in enumerate(listed)
        ]

    def integer(
        self,
        key: str,
        default: Any = _MISSING,
        least: int = 0,
        most: int = MOST,
    ) -> int:
        """An integer that is neither too small nor too large."""
        value = self.get(key, default)
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or value < least
        ):
            raise RequestError(
                f'{self.where}.{key}: {value!r} is no integer >= {least}'
            )
        if value > most:
            raise RequestError(f'{self.where}.{key}: it is more than {most}')
        return value

    def optional(self, key: str, least: int = 0) -> int | None:
        """An integer, or None if it is null or not there."""
        if self.get(key, None) is None:
            return None
        return self.integer(key, least=least)

    def number(self, key: str, default: float, least: int = -MOST) -> float:
        """A number, whole or not, of no more than :data:`MOST`."""
        value = self.get(key, default)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            # Python's JSON takes NaN, which is not, and 1e999, which is.
            or not least <= value <= MOST
        ):
            words = f'from {least}' if least > -MOST else 'up'
            raise RequestError(
                f'{self.where}.{key}: {value!r} is no number {words} to {MOST}'
            )
        return float(value)

    def text(self, key: str, default: Any = _MISSING) -> Any:
        """A text, or the default if it is null or not there."""
        value = self.get(key, default)
        if value is None and default is None:
            return None
        if not isinstance(value, str):
            raise RequestError(f'{self.where}.{key}: {value!r} is no text')
        return value

    def boolean(self, key: str, default: bool) -> bool:
        """True or false, and no word for it."""
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise RequestError(
                f'{self.where}.{key}: {value!r} is neither true nor false'
            )
        return value

    def choice(
        self, key: str, choices: tuple[str, ...], default: Any = _MISSING
    ) -> Any:
        """One of some words."""
        value = self.get(key, default)
        if value is not default and value not in choices:
            raise RequestError(
                f'{self.where}.{key}: {value!r} is not one of: '
                + ', '.join(choices)
            )
        return value

    def done(self) -> None:
        """Nothing more is wanted: what else stands there is a mistake."""
        unknown = sorted(set(self.values) - self._taken)
        if unknown:
            raise RequestError(
                f'{self.where}: nobody knows {", ".join(unknown)}; known '
                'are: ' + ', '.join(sorted(self._taken))
            )


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """The options of ``[vhpc_scheduler]`` that matter, at their defaults."""

    spare_cpus: int = 0
    max_overcommit: Mapping[str, float] = dataclasses.field(
        default_factory=lambda: {'openmp': 1.0, 'hybrid': 1.0}
    )
    allow_unknown: bool = False
    topology_max_age_s: int = 1200
    weight_of_unknown: float = -1.0
    weight_multiplier: float = 20.0


@dataclasses.dataclass(frozen=True, slots=True)
class Flavor:
    """A flavor, as far as it matters here.

    :ivar disk_gb: root and ephemeral disk.
    """

    vcpus: int
    ram_mb: int
    extra_specs: Mapping[str, str]
    disk_gb: int = 0
    name: str | None = None

    @property
    def pinned(self) -> bool:
        """Whether all vCPUs get a dedicated CPU each."""
        return self.judged_vcpus[1]

    @property
    def judged_vcpus(self) -> tuple[int, bool]:
        """The vCPUs that filter and planner judge; whether dedicated.

        As the filter has it: of a flavor with both kinds those that share,
        and with dedicated ones alone that of its emulator threads, too.
        """
        own = cpu_policy.dedicated(self.vcpus, self.extra_specs)
        shared = self.vcpus - own
        if shared > 0:
            return shared, False
        return own + cpu_policy.emulator_cpus(own, self.extra_specs), True


@dataclasses.dataclass(frozen=True, slots=True)
class ExplainRequest:
    """What is asked, but for the hosts.

    :ivar flavor: None if only its name is given.
    :ivar flavor_name: name or id of a flavor to look up, or None.
    :ivar group_name: name or id of a server group to look up, or None.
    :ivar devices: PCI devices of one member that come with its ports.
    """

    flavor: Flavor | None = None
    flavor_name: str | None = None
    members: int = 1
    group_name: str | None = None
    policy: str | None = None
    max_server_per_host: int | None = None
    existing: Mapping[str, int] = dataclasses.field(default_factory=dict)
    devices: int = 0
    options: Options = dataclasses.field(default_factory=Options)

    def question(
        self, hosts: tuple[model.Host, ...], now_s: float | None = None
    ) -> model.Question:
        """The question for :func:`explain.explain`."""
        options = self.options
        flavor = self.flavor
        if flavor is None:
            raise RequestError('flavor: it has not been looked up')
        requirements = of_flavor(
            flavor.extra_specs,
            flavor.judged_vcpus[0],
            self.devices + pci_aliases.devices(flavor.extra_specs),
            options.spare_cpus,
            options.max_overcommit,
        )
        return model.Question(
            requirements=requirements,
            members=self.members,
            ram_mb=flavor.ram_mb,
            hosts=hosts,
            policy=self.policy,
            max_server_per_host=self.max_server_per_host,
            existing=self.existing,
            limits=Limits(
                now_minutes=(time.time() if now_s is None else now_s) / 60,
                max_age_s=options.topology_max_age_s,
                allow_unknown=options.allow_unknown,
            ),
            weight_of_unknown=options.weight_of_unknown,
            multiplier=options.weight_multiplier,
            flaws=tuple(validation.problems(flavor.extra_specs)),
        )


def read(
    document: Any, now_s: float | None = None
) -> tuple[ExplainRequest, tuple[model.Host, ...] | None]:
    """Read a REQUEST.json.

    :param document: as decoded from JSON.
    :param now_s: seconds since the epoch, to date what was published.
    :returns: the request and its hosts, or None if they are to be read
        from the cloud.
    :raises RequestError: naming the place.
    """
    now_s = time.time() if now_s is None else now_s
    top = ObjectReader(document, 'request')
    flavor = top.get('flavor')
    request = ExplainRequest(
        flavor=None if isinstance(flavor, str) else _flavor(flavor),
        flavor_name=flavor if isinstance(flavor, str) else None,
        members=top.integer('members', 1, least=1),
        devices=top.integer('devices', 0),
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
        )
        reader.done()
    hosts = None
    if top.get('hosts', None) is not None:
        hosts = tuple(_host(reader, now_s) for reader in top.children('hosts'))
        _no_twins('request.hosts', (host.facts.name for host in hosts))
    top.done()
    return request, hosts


def _no_twins(where: str, names: Iterable[str]) -> None:
    twice = [n for n, count in collections.Counter(names).items() if count > 1]
    if twice:
        raise RequestError(
            f'{where}: {", ".join(sorted(twice))} stands there twice'
        )


def _flavor(document: Any) -> Flavor:
    reader = ObjectReader(document, 'request.flavor')
    extra_specs = reader.child('extra_specs')
    specs = {name: str(value) for name, value in extra_specs.values.items()}
    for name, value in specs.items():
        if len(value) > MOST_CHARACTERS:
            raise RequestError(
                f'{extra_specs.where}.{name}: it has {len(value)} characters, '
                f'Nova takes {MOST_CHARACTERS}'
            )
    found = Flavor(
        vcpus=reader.integer('vcpus', least=1, most=MOST_VCPUS),
        ram_mb=reader.integer('ram_mb', 0),
        disk_gb=reader.integer('disk_gb', 0),
        name=reader.text('name', None),
        extra_specs=specs,
    )
    reader.done()
    return found


def _options(reader: ObjectReader) -> Options:
    default = Options()
    found = Options(
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
    reader.done()
    return found


def _overcommit(reader: ObjectReader) -> Mapping[str, float]:
    try:
        return overcommit_limits(reader.values)
    except ValueError as error:
        raise RequestError(f'{reader.where}: {error}') from None


def _host(reader: ObjectReader, now_s: float) -> model.Host:
    name = reader.get('name')
    if not isinstance(name, str) or not name:
        raise RequestError(f'{reader.where}.name: {name!r} is no name')
    cpus = reader.integer('cpus')
    used = reader.integer('used_vcpus', 0)
    ratio = reader.number('cpu_allocation_ratio', 1.0)
    age = reader.optional('published_minutes_ago')
    topology = None
    if reader.get('uplinks', None) is not None:
        uplinks = [_uplink(item, name) for item in reader.children('uplinks')]
        # Each is one resource provider, named after bridge and NIC.
        _no_twins(f'{reader.where}.uplinks', map(str, uplinks))
        topology = HostUplinks(
            tuple(uplinks),
            # Without a stamp, what was published never grows stale.
            None if age is None else int(now_s // 60) - age,
        )
    host = model.Host(
        facts=HostFacts(
            name,
            cpus,
            used,
            cpus * ratio - used,
            reader.number('free_ram_mb', 1e9),
            switch=reader.text('switch', None),
            rack=reader.text('rack', None),
        ),
        view=HostView(cpus, used, topology),
        nova_reason=reader.text('nova_lack', None),
        devices=reader.optional('devices'),
        multiplier=(
            None
            if reader.get('weight_multiplier', None) is None
            else reader.number('weight_multiplier', 0.0)
        ),
    )
    reader.done()
    return host


def _uplink(reader: ObjectReader, host: str) -> UplinkState:
    kind = reader.choice('kind', tuple(str(kind) for kind in BridgeKind))
    bridge, nic = reader.text('bridge'), reader.text('nic', '?')
    up = reader.boolean('up', True)
    mbps = reader.integer('mbps', 1000)
    slots = reader.integer('slots', 1)
    found = UplinkState(
        uuid=provider_uuid(host, bridge, nic),
        kind=BridgeKind(kind),
        bridge=bridge,
        nic=nic,
        # As the agent publishes a dead link.
        mbps=mbps if up else 0,
        slots=slots if up else 0,
        used=reader.integer('used', 0),
    )
    reader.done()
    return found
