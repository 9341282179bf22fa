# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""All results of the bench as one JSON document, printed on the way."""

import contextlib
import dataclasses
import datetime
import os
import platform
from collections.abc import Mapping
from typing import Any

from nova_vhpc.scheduler.planner.cost_table import CostTable
from nova_vhpc_lab.bench.network import (
    calibration,
    figures,
    libraries,
    matrix,
    order,
    report,
)
from nova_vhpc_lab.bench.network.layout import Cluster

Clusters = Mapping[Cluster, Mapping[str, matrix.Measured]]
"""What was measured, by cluster and library."""


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """How it was measured.

    :ivar link_mbps: speed of each uplink, in Mbit/s.
    :ivar seconds: length of each single measurement.
    :ivar rounds: number of runs of each.
    :ivar spare_cpu: whether also with and without a spare CPU.
    """

    link_mbps: float
    seconds: float
    rounds: int
    spare_cpu: bool


def document(
    settings: Settings, clusters: Clusters, table: CostTable
) -> dict[str, Any]:
    """Print the tables and return the JSON.

    :param table: the cost table by which the planner compares.
    """
    result: dict[str, Any] = {
        'when': datetime.datetime.now(datetime.UTC).isoformat(
            timespec='seconds'
        ),
        'machine': {'kernel': platform.release(), 'cpus': os.cpu_count()},
        'libraries': {
            name: libraries.LIBRARIES[name].package
            for by_library in clusters.values()
            for name in by_library
        },
        'link_mbps': settings.link_mbps,
        'seconds': settings.seconds,
        'rounds': settings.rounds,
        'clusters': {},
        'spare_cpu': {},
        'failures': {
            str(cluster): {
                library: measured.failures
                for library, measured in by_library.items()
                if measured.failures
            }
            for cluster, by_library in clusters.items()
        },
    }
    for cluster, by_library in clusters.items():
        entries = result['clusters'][str(cluster)] = _entries(
            cluster, {name: one.runs for name, one in by_library.items()}
        )
        report.print_cluster(str(cluster), entries)
    if settings.spare_cpu:
        _add_spare_cpu(result, clusters)
    print('\nOrder of the configurations by the cost table of the planner:')
    tables = {
        name: table for measured in clusters.values() for name in measured
    }
    result['order'] = _orders(clusters, settings.link_mbps, tables)
    result['order_matches_planner'] = _all_match(result['order'])
    print('\nBy a cost table of the measured pairs, for each library its own:')
    own = _own_tables(clusters, settings.link_mbps)
    result['calibrated_order'] = _orders(clusters, settings.link_mbps, own)
    result['order_matches_calibrated'] = _all_match(result['calibrated_order'])
    return result


def _entries(
    cluster: Cluster, by_library: Mapping[str, matrix.Runs]
) -> dict[str, dict[str, Any]]:
    return {
        library: {
            configuration: figures.entry(of_configuration, cluster)
            for configuration, of_configuration in runs.items()
        }
        for library, runs in by_library.items()
    }


def _add_spare_cpu(result: dict[str, Any], clusters: Clusters) -> None:
    """Print and add what was measured with and without a spare CPU."""
    result['with_spare_cpu'] = {}
    result['without_spare_cpu'] = {}
    for cluster, by_library in clusters.items():
        name = str(cluster)
        result['with_spare_cpu'][name] = _entries(
            cluster,
            {library: one.with_spare for library, one in by_library.items()},
        )
        result['without_spare_cpu'][name] = _entries(
            cluster,
            {
                library: one.without_spare
                for library, one in by_library.items()
            },
        )
        result['spare_cpu'][name] = {
            library: figures.spare_cpu(one.with_spare, one.without_spare)
            for library, one in by_library.items()
        }
        for key, about in (
            ('with_spare_cpu', 'with a spare CPU'),
            ('without_spare_cpu', 'without a spare CPU'),
        ):
            report.print_cluster(f'{name}, {about}', result[key][name])
        report.print_spare_cpu(name, result['spare_cpu'][name])


def _own_tables(clusters: Clusters, link_mbps: float) -> dict[str, CostTable]:
    """Return the cost tables of the libraries of which one can be made."""
    tables: dict[str, CostTable] = {}
    for by_library in clusters.values():
        for library, measured in by_library.items():
            with contextlib.suppress(ValueError):
                tables.setdefault(
                    library, calibration.table(measured.runs, link_mbps)
                )
    return tables


def _orders(
    clusters: Clusters, link_mbps: float, tables: Mapping[str, CostTable]
) -> dict[str, dict[str, Any]]:
    """Print and return how orders compare, by cluster and library.

    :param tables: cost tables by library.
    """
    orders: dict[str, dict[str, Any]] = {}
    for cluster, by_library in clusters.items():
        of_cluster = orders[str(cluster)] = {}
        for library, table in tables.items():
            if library not in by_library:
                continue
            comparisons = list(
                order.compare(
                    cluster, by_library[library].runs, link_mbps, table
                )
            )
            of_cluster[library] = order.document(comparisons)
            report.print_order(str(cluster), library, of_cluster[library])
    return orders


def _all_match(orders: Mapping[str, Mapping[str, Any]]) -> bool:
    return not any(
        one['differing']
        for of_cluster in orders.values()
        for one in of_cluster.values()
    )
