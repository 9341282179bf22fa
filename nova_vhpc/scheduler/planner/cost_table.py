# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What the papers measured of one kind of host, for the cost model.

Each number stands with its source. HPCVirt'09 is *An Evaluation of Multiple
Communication Interfaces for Virtualized SMP Clusters* (4-CPU hosts, Gigabit
Ethernet); NPC'09 is *Performance Evaluation of Parallel Programming in Virtual
Machine Environment*. A number that no paper measured is marked "Derived" (from
the paper's other figures) or "Ours" (our assumption).
"""

import dataclasses
from collections.abc import Mapping
from typing import Final

Columns = tuple[float, ...]

NATIVE: Final = 'native'
"""The baseline: Linux without a hypervisor, with OpenMPI unless stated."""

PAPER_LINK_MBPS: Final = 1000
"""Link speed of all tables, in Mbit/s."""

PAPER_HOST_CPUS: Final = 4
"""CPUs of the hosts of all tables. Column n of a table is also the load at
which guests keep n of these CPUs busy."""

LATENCY_US: Final[Mapping[str, Columns]] = {
    'native': (125, 94, 114, 123),
    'native-mpich': (106, 104, 124, 123),
    'exported': (125, 112, 80, 110),
    'separate': (125, 129, 125, 160),
    'shared': (126, 125, 128, 149),
}
"""HPCVirt'09 table 1: latency at 1 byte in microseconds, members on
different hosts, one to four communicating pairs."""

REMOTE_MB_S: Final[Mapping[str, Columns]] = {
    'native': (109, 165, 300, 397),
    'native-mpich': (105, 186, 305, 366),
    'exported': (105, 183, 312, 394),
    'separate': (102, 182, 177, 142),
    'shared': (102, 119, 105, 96),
}
"""HPCVirt'09 table 3: mean bandwidth from 4 KB on, MB/s of all pairs,
members on different hosts, one to four pairs."""

LOCAL_MB_S: Final[Mapping[str, Columns]] = {
    'native': (1250, 1804),
    'exported': (87, 196),
    'separate': (84, 94),
    'shared': (344, 300),
}
"""HPCVirt'09 table 5: mean bandwidth from 4 KB on, MB/s of all pairs,
members on one host, one and two pairs."""

TWO_INTERFACES: Final[Mapping[str, float]] = {
    'shared-separate': 1.6,
    'multiple-shared': 1.1,
}
"""Factor by which a second guest interface raises what the host's CPUs can
carry to other hosts.
Derived: the least round value that puts ``shared-separate`` at 8-10% below
native on 2x4 (HPCVirt'09 section 6.4), and ``multiple-shared`` "slightly
better" than ``shared`` and ``separate`` on 8x2. The micro-benchmarks could
not measure the two (section 6.2)."""

SHARED_UPLINKS: Final[Mapping[str, int]] = {
    'shared': 1,
    'multiple-shared': 2,
}
"""HPCVirt'09 section 4: uplinks that all guests of a host share. The other
configurations give each guest one of its own."""

NO_SPARE_CPU: Final = 1.325
"""HPCVirt'09 section 6.4: 8x1, with a CPU for the packet work, is 30-35%
faster than 2x4 without."""


@dataclasses.dataclass(frozen=True, slots=True)
class CostTable:
    """What was measured of one kind of host.

    Rows are network configurations and ``native``; column n is for n
    communicating pairs.

    :ivar link_mbps: speed of the uplinks, in Mbit/s.
    :ivar latency_us: see :data:`LATENCY_US`.
    :ivar remote_mb_s: see :data:`REMOTE_MB_S`.
    :ivar local_mb_s: see :data:`LOCAL_MB_S`.
    :ivar two_interfaces: see :data:`TWO_INTERFACES`.
    :ivar shared_uplinks: see :data:`SHARED_UPLINKS`; a fraction if programs
        cannot fill all of them.
    :ivar no_spare_cpu: see :data:`NO_SPARE_CPU`.
    """

    link_mbps: float
    latency_us: Mapping[str, Columns]
    remote_mb_s: Mapping[str, Columns]
    local_mb_s: Mapping[str, Columns]
    two_interfaces: Mapping[str, float]
    shared_uplinks: Mapping[str, float]
    no_spare_cpu: float


PAPER: Final = CostTable(
    PAPER_LINK_MBPS,
    LATENCY_US,
    REMOTE_MB_S,
    LOCAL_MB_S,
    TWO_INTERFACES,
    SHARED_UPLINKS,
    NO_SPARE_CPU,
)
"""The papers' hosts, in effect unless the operator has measured others."""
