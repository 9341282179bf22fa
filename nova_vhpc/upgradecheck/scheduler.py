# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The check of filter, weigher, and Nova's options that bear on the plan."""

from collections.abc import Mapping, Sequence
from typing import Any

from nova_vhpc.upgradecheck import checks

FILTER = 'VirtualClusterFilter'
FILTER_CLASS = f'nova_vhpc.scheduler.filters.{FILTER}'
WEIGHER_CLASS = 'nova_vhpc.scheduler.weights.VirtualClusterWeigher'

ALL_FILTERS = 'nova.scheduler.filters.all_filters'
ALL_WEIGHERS = 'nova.scheduler.weights.all_weighers'

_SOFT = (
    'soft_affinity_weight_multiplier',
    'soft_anti_affinity_weight_multiplier',
)
"""Multipliers of which only one applies to a server group."""

_LEAST_LEAD = 0.4
"""Least difference of raw weight between a host of the plan and another."""


def check(
    options: Any, multipliers: Mapping[str, float], own_multiplier: float
) -> checks.Result:
    """Check filter and weigher, and what has Nova leave the plan.

    Some options of Nova do not keep our filter and weigher from working, but
    have Nova take other hosts than the plan's.

    :param options: ``[filter_scheduler]`` of nova.conf.
    :param multipliers: multipliers of Nova's weighers that compete with the
        plan, by option.
    :param own_multiplier: ``[vhpc_scheduler] weight_multiplier``.
    """
    missing = _missing(options)
    if missing:
        return checks.failure(
            '[filter_scheduler] of nova.conf lacks '
            + '; '.join(missing)
            + '. Add it.'
        )
    if ALL_FILTERS not in options.available_filters:
        return checks.failure(
            f"available_filters lacks {ALL_FILTERS}, so nova's own filters "
            'cannot be enabled. Add it as a line of its own.'
        )
    traps = [
        *_filter_traps(options.enabled_filters),
        *_choice_traps(options),
        *_weight_traps(options, multipliers, own_multiplier),
    ]
    if traps:
        return checks.warning(' '.join(traps))
    if options.shuffle_best_same_weighed_hosts:
        return checks.success(
            'shuffle_best_same_weighed_hosts has no effect on virtual '
            'clusters: no two hosts of a plan have the same weight.'
        )
    return checks.success()


def _missing(options: Any) -> list[str]:
    """Return the lines that nova.conf lacks."""
    missing = []
    if FILTER_CLASS not in options.available_filters:
        missing.append(f'available_filters = {FILTER_CLASS}')
    if FILTER not in options.enabled_filters:
        missing.append(f'enabled_filters = ...,{FILTER}')
    if WEIGHER_CLASS not in options.weight_classes:
        missing.append(f'weight_classes = ...,{WEIGHER_CLASS}')
    return missing


def _filter_traps(enabled: Sequence[str]) -> list[str]:
    """Return what the other filters, or their order, do to our filter."""
    traps = []
    later = enabled[enabled.index(FILTER) + 1 :]
    if later:
        # NUMATopologyFilter and PciPassthroughFilter replace the candidates
        # of a host. A filter behind ours also gets hosts more than once.
        traps.append(
            f'{FILTER} comes before {", ".join(later)} in enabled_filters. '
            'Make it the last one: it then costs least, and selects from '
            'the hosts and candidates that the others leave.'
        )
    if 'AggregateInstanceExtraSpecsFilter' in enabled:
        traps.append(
            'AggregateInstanceExtraSpecsFilter looks for group_policy, which '
            'flavors with several request groups have (vhpc:network='
            'multiple-shared), in the metadata of aggregates: it rejects '
            'every host without. Give the aggregates of your hosts '
            'group_policy=none, or do without that filter if no flavor '
            'relies on it.'
        )
    return traps


def _choice_traps(options: Any) -> list[str]:
    """Return which options have Nova choose among hosts by chance or late."""
    traps = []
    size = options.host_subset_size
    if size > 1:
        traps.append(
            f'host_subset_size is {size}: Nova takes one of the {size} best '
            f'hosts by chance. {FILTER} lists hosts of the plan {size} times, '
            'so that members follow the plan; a member without a plan lands '
            'on any of those hosts. Set it to 1.'
        )
    if not options.track_instance_changes:
        traps.append(
            'track_instance_changes is False: nova-scheduler asks the '
            'database of its cell for the servers of every host, host by '
            'host, at every boot. Clusters are placed as well, but later. '
            'Set it to True, unless the cells have message queues of their '
            'own.'
        )
    return traps


def _weight_traps(
    options: Any, multipliers: Mapping[str, float], own: float
) -> list[str]:
    """Return which of Nova's weighers may outweigh the plan."""
    raised = {
        name: multiplier
        for name, multiplier in multipliers.items()
        if abs(multiplier) > 1.0
    }
    total = sum(map(abs, multipliers.values()))
    total -= min(abs(multipliers.get(name, 0.0)) for name in _SOFT)
    lead = _LEAST_LEAD * own
    if (
        ALL_WEIGHERS not in options.weight_classes
        or not own
        or not raised
        or total <= lead
    ):
        return []
    named = ', '.join(f'{name} = {value:g}' for name, value in raised.items())
    return [
        f"Nova's weighers can outweigh the plan ({named}): together they "
        f'weigh up to {total:g}, and a host of the plan exceeds others by '
        f'{lead:g} at least. Set [vhpc_scheduler] weight_multiplier to '
        f'{total / _LEAST_LEAD:g} or more.'
    ]
