# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""A cloud of the operator's own, from a document of plain values.

.. code-block:: json

   {"overcommit": 2.0,
    "hosts": [{"count": 8, "cpus": 64, "ram_mb": 524288, "switch": "s1"}],
    "clusters": [{"count": 3, "members": 16, "vcpus": 8, "ram_mb": 16384,
                  "program": "cg", "group_policy": "soft-affinity"}],
    "vms": [{"count": 40, "vcpus": 4, "ram_mb": 8192, "program": "web"}]}
"""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from nova_vhpc_lab.sim.cloud import scenarios
from nova_vhpc_lab.sim.cloud.spec import CloudSpec, HostKind, Job


@dataclasses.dataclass(frozen=True, slots=True)
class WhatIf:
    """What is to be different from the document.

    :ivar overcommit: instead of the document's; None for that.
    :ivar more_hosts: hosts to add, like the first of the document.
    :ivar more_clusters: clusters to add, like the first of the document.
    """

    overcommit: float | None = None
    more_hosts: int = 0
    more_clusters: int = 0


def read(
    document: Mapping[str, Any],
    group_policy: str | None,
    what_if: WhatIf = WhatIf(),
) -> CloudSpec:
    """Return the cloud of a document.

    :param group_policy: of clusters that name none.
    :raises ValueError: the document is wrong.
    """
    try:
        hosts = tuple(_hosts(document, what_if.more_hosts))
        jobs = (
            *_jobs(document.get('clusters', ()), 'c', what_if.more_clusters),
            *_jobs(document.get('vms', ()), 'v', 0),
        )
        ratio = what_if.overcommit or float(document.get('overcommit', 1.0))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f'the inventory is wrong: {error!r}') from error
    if not hosts or not jobs:
        raise ValueError('the inventory has no hosts, or nothing runs on them')
    names = Counter(name for job in jobs for name in job.vm_names())
    name, count = names.most_common(1)[0]
    if count > 1:
        raise ValueError(f"the inventory has {count} VMs named '{name}'")
    return CloudSpec(
        'inventory',
        hosts,
        jobs,
        overcommit=ratio,
        group_policy=group_policy,
    )


def _hosts(document: Mapping[str, Any], more: int) -> Iterator[HostKind]:
    for number, entry in enumerate(document['hosts']):
        count = int(entry.get('count', 1)) + (more if number == 0 else 0)
        name = entry.get('name', f'h{number + 1}')
        for index in range(count):
            yield HostKind(
                f'{name}-{index + 1}' if count > 1 else name,
                int(entry['cpus']),
                int(entry.get('ram_mb', 1 << 40)),
                entry.get('switch'),
                entry.get('rack'),
            )


def _jobs(
    entries: list[Mapping[str, Any]], letter: str, more: int
) -> Iterator[Job]:
    for number, entry in enumerate(entries):
        count = int(entry.get('count', 1)) + (more if number == 0 else 0)
        name = entry.get('name', f'{letter}{number + 1}')
        job = scenarios.job(
            name,
            str(entry['program']),
            int(entry['vcpus']),
            int(entry.get('members', 1)),
        )
        job = dataclasses.replace(
            job,
            ram_mb=int(entry.get('ram_mb', 1)),
            policy=entry.get('group_policy'),
        )
        for index in range(count):
            yield dataclasses.replace(
                job, name=f'{name}-{index + 1}' if count > 1 else name
            )
