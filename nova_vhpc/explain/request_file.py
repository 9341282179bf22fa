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
from nova_vhpc.explain.request import (
    ExplainRequest,
    Flavor,
    Options,
    RequestError,
)
from nova_vhpc.scheduler.hosts.requirements import (
    HostView,
)
from nova_vhpc.scheduler.planner.model import HostFacts
from nova_vhpc.scheduler.sources import neutron_uplink
from nova_vhpc.scheduler.sources.neutron_uplink import NeutronUplink
from nova_vhpc.scheduler.sources.snapshot import HostUplinks, UplinkState
from nova_vhpc.topology.model import BridgeKind, physnet_trait, provider_uuid

_HALF = re.compile(r'[\ud800-\udfff]')
"""Half of a surrogate pair: JSON's escapes allow it, but UTF-8 does not."""

_MOST_CHARACTERS = 400
"""Most characters of the message on a wrong value, which it contains."""


_OPTIONS = {
    'spare_cpus': 'spare_cpus',
    'topology_max_age': 'topology_max_age_s',
    'weight_of_unknown': 'weight_of_unknown',
    'weight_multiplier': 'weight_multiplier',
}
"""Fields of :class:`Options` by the name of the option."""


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
