# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What the aggregates of a cloud say of their hosts.

Pure; aggregates are those of Nova's API.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from nova_vhpc.explain.cloud.nova_options import NovaOptions
from nova_vhpc.scheduler.planner import host_weights

_TRAIT = 'trait:'
_SCOPE = 'aggregate_instance_extra_specs:'


def multipliers(
    aggregates: Iterable[Mapping[str, Any]],
) -> dict[str, float]:
    """Return the weight multipliers by host, from metadata of aggregates.

    As in the weigher, the least of several counts, and none of them if one is
    no finite number.
    """
    numbers_by_host: dict[str, list[float]] = {}
    for aggregate in aggregates:
        text = aggregate['metadata'].get(host_weights.MULTIPLIER_KEY)
        if text is None:
            continue
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        for host in aggregate['hosts']:
            numbers_by_host.setdefault(host, []).append(number)
    return {
        host: min(numbers)
        for host, numbers in numbers_by_host.items()
        if not any(map(math.isnan, numbers)) and math.isfinite(min(numbers))
    }


class Rejections:
    """Why Nova rejects hosts because of their aggregates.

    :param specs: extra specs of the flavor.
    :param options: options of nova-scheduler.
    """

    def __init__(
        self,
        aggregates: Iterable[Mapping[str, Any]],
        specs: Mapping[str, str],
        options: NovaOptions,
    ) -> None:
        self._isolated: dict[str, str] = {}
        self._metadata: dict[str, set[str]] = {}
        self._wanted = _wanted_metadata(specs, options)
        required = {
            key.partition(':')[2]
            for key, value in specs.items()
            if key.startswith('trait') and value == 'required'
        }
        for aggregate in aggregates:
            missing = sorted(
                key
                for key, value in aggregate['metadata'].items()
                if key.startswith(_TRAIT)
                and value == 'required'
                and key.removeprefix(_TRAIT) not in required
            )
            for host in aggregate['hosts']:
                keys = self._metadata.setdefault(host, set())
                keys.update(aggregate['metadata'])
                if missing and options.isolates_aggregates:
                    self._isolated[host] = (
                        f'its aggregate {aggregate["name"]} is for servers '
                        f'that require {", ".join(missing)} '
                        '(enable_isolated_aggregate_filtering)'
                    )

    def reason(self, host: str) -> str | None:
        """Return why Nova rejects a host, None if it does not."""
        if host in self._isolated:
            return self._isolated[host]
        missing = sorted(self._wanted - self._metadata.get(host, set()))
        if missing:
            return (
                f'AggregateInstanceExtraSpecsFilter: no aggregate of it has '
                f'the metadata {", ".join(missing)} of the flavor'
            )
        return None


def _wanted_metadata(
    specs: Mapping[str, str], options: NovaOptions
) -> frozenset[str]:
    """Return the keys that an aggregate of each host must have."""
    if not options.checks_aggregate_specs:
        return frozenset()
    return frozenset(
        key.removeprefix(_SCOPE)
        for key in specs
        if ':' not in key or key.startswith(_SCOPE)
    )
