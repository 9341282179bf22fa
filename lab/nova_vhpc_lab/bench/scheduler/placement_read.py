# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Time of the filter's bulk read from a real Placement in this process."""

import json
import tempfile
import time
from typing import Any

from nova_vhpc.topology import model
from nova_vhpc_lab.bench.scheduler import world


def measure(hosts: int) -> dict[str, Any]:
    """Read all uplinks once from a Placement on SQLite.

    :returns: figures by their JSON keys; ``read_s`` is Placement's part of
        the time, ``parse_s`` ours; names (``names_s``) are read only if there
        are new uplinks.
    """
    from oslo_config import cfg
    from placement import conf as placement_conf
    from placement import db_api, deploy, direct

    from nova_vhpc.scheduler.sources import snapshot

    conf = cfg.ConfigOpts()
    placement_conf.register_opts(conf)
    with tempfile.TemporaryDirectory(prefix='vhpc-bench-') as folder:
        conf.set_override(
            'connection', f'sqlite:///{folder}/db', 'placement_database'
        )
        conf.set_override('sync_on_startup', True, 'placement_database')
        conf([], default_config_files=[], project='placement')
        conf.set_override('max_allocation_candidates', -1, 'placement')
        db_api.configure(conf)
        deploy.update_database(conf)
        _fill(hosts)
        with direct.PlacementDirect(conf) as client:
            began_s = time.monotonic()
            response = client.get(
                snapshot.BULK_READ, microversion=snapshot.BULK_READ_VERSION
            )
            read_s = time.monotonic() - began_s
            response.raise_for_status()
            began_s = time.monotonic()
            names_response = client.get(
                snapshot.names_read(response.json(), {}),
                microversion=snapshot.NAMES_READ_VERSION,
            )
            names_s = time.monotonic() - began_s
            names_response.raise_for_status()
        names = snapshot.parse_names(
            names_response.json()['resource_providers']
        )
        began_s = time.monotonic()
        parsed = snapshot.parse(json.loads(response.content), names)
        parse_s = time.monotonic() - began_s
    uplinks = sum(len(host.uplinks) for host in parsed.hosts.values())
    if (len(parsed.hosts), uplinks) != (hosts, hosts * world.UPLINKS):
        raise RuntimeError(
            f'{len(parsed.hosts)} hosts and {uplinks} uplinks were read'
        )
    return {
        'uplinks': uplinks,
        'read_s': round(read_s, 3),
        'parse_s': round(parse_s, 3),
        'names_s': round(names_s, 3),
        'body_mb': round(len(response.content) / 1e6, 2),
    }


def _fill(hosts: int) -> None:
    """Write hosts and uplinks straight into Placement's database.

    Placement's API would take an hour for 10,000 hosts.
    """
    from placement import context, db_api
    from placement.db.sqlalchemy import models

    def write(ctx: Any) -> None:
        session = ctx.session
        classes = _ids(
            session,
            models.ResourceClass,
            (model.UPLINK, model.MBPS, model.STAMP, 'VCPU', 'MEMORY_MB'),
        )
        traits = _ids(
            session, models.Trait, (model.TRAIT_HOST, model.TRAIT_SEPARATE)
        )
        rows = _Rows(classes, traits)
        for number in range(hosts):
            rows.host(world.node_name(number))
        session.bulk_insert_mappings(models.ResourceProvider, rows.providers)
        session.bulk_insert_mappings(models.Inventory, rows.inventories)
        session.bulk_insert_mappings(models.ResourceProviderTrait, rows.traits)

    db_api.placement_context_manager.writer(write)(context.RequestContext())


def _ids(session: Any, table: Any, names: tuple[str, ...]) -> dict[str, int]:
    """Return row IDs by name; add the rows that are missing."""
    for name in names:
        if not session.query(table).filter_by(name=name).count():
            session.add(table(name=name))
    session.flush()
    return {
        row.name: row.id
        for row in session.query(table).filter(table.name.in_(names))
    }


class _Rows:
    """Rows of Placement's tables, as dictionaries for a bulk insert.

    :param classes: row IDs of the resource classes, by name.
    :param traits: row IDs of the traits, by name.
    """

    def __init__(
        self, classes: dict[str, int], traits: dict[str, int]
    ) -> None:
        self.providers: list[dict[str, Any]] = []
        self.inventories: list[dict[str, Any]] = []
        self.traits: list[dict[str, Any]] = []
        self._classes = classes
        self._trait_ids = traits

    def host(self, node: str) -> None:
        """Add a compute node with its marker and uplinks."""
        root = self._provider(
            world.root_uuid(node),
            node,
            None,
            {'VCPU': world.CPUS, 'MEMORY_MB': world.RAM_MB},
            model.TRAIT_HOST,
        )
        self._provider(
            model.marker_uuid(node),
            model.marker_name(node),
            root,
            {model.STAMP: 29000000},
        )
        for number, uuid in enumerate(world.uplink_uuids(node)):
            self._provider(
                uuid,
                model.provider_name(node, f'br{number}', f'eth{number}'),
                root,
                {model.UPLINK: 1, model.MBPS: 10000},
                model.TRAIT_SEPARATE,
            )

    def _provider(
        self,
        uuid: str,
        name: str,
        root: int | None,
        totals: dict[str, int],
        *traits: str,
    ) -> int:
        number = len(self.providers) + 1
        self.providers.append(
            {
                'id': number,
                'uuid': uuid,
                'name': name,
                'generation': 1,
                'root_provider_id': root or number,
                'parent_provider_id': root,
            }
        )
        for resource_class, total in totals.items():
            self.inventories.append(
                {
                    'resource_provider_id': number,
                    'resource_class_id': self._classes[resource_class],
                    'total': total,
                    'reserved': 0,
                    'min_unit': 1,
                    'max_unit': total,
                    'step_size': 1,
                    'allocation_ratio': 1.0,
                }
            )
        for trait in traits:
            self.traits.append(
                {
                    'resource_provider_id': number,
                    'trait_id': self._trait_ids[trait],
                }
            )
        return number
