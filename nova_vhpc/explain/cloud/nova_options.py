# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Options of nova-scheduler that decide which hosts it considers.

``nova-vhpc-explain`` must not call a host fit that Nova leaves out. Therefore
what these options do is repeated, or named as not considered.
"""

import dataclasses
from collections.abc import Mapping

from oslo_config import cfg

from nova_vhpc.explain.cloud import pci_devices

MAX_PLACEMENT_RESULTS = 1000
"""Default of ``[scheduler] max_placement_results``."""

AGGREGATE_SPECS_FILTER = 'AggregateInstanceExtraSpecsFilter'

_CONSIDERED = frozenset(
    {
        'AllHostsFilter',
        'ComputeFilter',
        'ServerGroupAffinityFilter',
        'ServerGroupAntiAffinityFilter',
        'VirtualClusterFilter',
    }
)
"""Filters whose decisions the explanation contains."""

_TRANSLATED_BY_NOVA = (
    'accel:device_profile',
    'hw:ephemeral_encryption',
    'hw:maxphysaddr_',
    'hw:mem_encryption',
    'hw:pci_numa_affinity_policy',
    'hw:pmem',
    'hw:sound_model',
    'hw:tpm_',
    'hw:virtio_packed_ring',
    'os:secure_boot',
)
"""Beginnings of extra specs that Nova turns into resources or traits, which
the explanation does not ask Placement for."""

_OPTS = {
    'pci': [cfg.MultiStrOpt('alias', default=[])],
    'filter_scheduler': [
        cfg.ListOpt('enabled_filters'),
        cfg.BoolOpt('pci_in_placement', default=False),
    ],
    'scheduler': [
        cfg.IntOpt('max_placement_results', default=MAX_PLACEMENT_RESULTS),
        cfg.BoolOpt('enable_isolated_aggregate_filtering', default=False),
        cfg.BoolOpt('limit_tenants_to_placement_aggregate', default=False),
    ],
    'workarounds': [
        cfg.BoolOpt('disable_fallback_pcpu_query', default=False),
    ],
}


@dataclasses.dataclass(frozen=True, slots=True)
class NovaOptions:
    """Options of nova-scheduler; the defaults are Nova's.

    :ivar known: whether a configuration file was read.
    :ivar aliases: PCI devices by alias.
    :ivar pci_in_placement: whether Placement allocates the devices of
        aliases.
    :ivar enabled_filters: names of the enabled filters; None for Nova's
        default.
    :ivar max_placement_results: most candidates that Nova asks Placement for
        if a server is in no server group.
    :ivar isolates_aggregates: whether hosts of aggregates with required
        traits are for flavors with these traits only.
    :ivar limits_projects: whether projects may use hosts of their aggregates
        only.
    :ivar falls_back: whether pinned servers may go to hosts that report no
        dedicated CPUs.
    """

    known: bool = False
    aliases: Mapping[str, pci_devices.Alias] = dataclasses.field(
        default_factory=dict
    )
    pci_in_placement: bool = False
    enabled_filters: tuple[str, ...] | None = None
    max_placement_results: int = MAX_PLACEMENT_RESULTS
    isolates_aggregates: bool = False
    limits_projects: bool = False
    falls_back: bool = True

    def notes(self, specs: Mapping[str, str]) -> tuple[str, ...]:
        """Return what the explanation of a cloud does not consider.

        :param specs: extra specs of the flavor.
        """
        notes = []
        if not self.known:
            notes.append(
                "nova-scheduler's configuration was not read (--config-file): "
                'its defaults count.'
            )
        others = [
            name
            for name in self.enabled_filters or ()
            if name not in _CONSIDERED
        ]
        if others or self.enabled_filters is None:
            named = ', '.join(others) or 'ComputeCapabilitiesFilter and others'
            notes.append(
                f"Nova's own filters are not asked ({named}), nor is the "
                'image known: Nova may reject a host that passes here.'
            )
        translated = sorted(
            key for key in specs if key.startswith(_TRANSLATED_BY_NOVA)
        )
        if translated:
            notes.append(
                f'What {", ".join(translated)} ask of a host is not looked '
                'up: Nova may reject a host that passes here.'
            )
        if self.limits_projects:
            notes.append(
                'Nova offers a project the hosts of its aggregates only '
                '(limit_tenants_to_placement_aggregate); the project is not '
                'known here.'
            )
        return tuple(notes)

    @property
    def checks_aggregate_specs(self) -> bool:
        """Whether unscoped extra specs must be in an aggregate's metadata."""
        return AGGREGATE_SPECS_FILTER in (self.enabled_filters or ())


DEFAULTS = NovaOptions()


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register Nova's options, which need not be installed here."""
    for group, opts in _OPTS.items():
        conf.register_opts(opts, group=group)


def read(conf: cfg.ConfigOpts, known: bool) -> NovaOptions:
    """Return the options of a configuration.

    :param known: whether a configuration file was read.
    """
    filters = conf.filter_scheduler.enabled_filters
    return NovaOptions(
        known=known,
        aliases=pci_devices.aliases(conf.pci.alias),
        pci_in_placement=conf.filter_scheduler.pci_in_placement,
        enabled_filters=None if filters is None else tuple(filters),
        max_placement_results=conf.scheduler.max_placement_results,
        isolates_aggregates=conf.scheduler.enable_isolated_aggregate_filtering,
        limits_projects=conf.scheduler.limit_tenants_to_placement_aggregate,
        falls_back=not conf.workarounds.disable_fallback_pcpu_query,
    )
