# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tables and figures of HPCVirt'09, and the values that it prints. Pure."""

import dataclasses
from collections.abc import Mapping

from nova_vhpc.scheduler.planner import cost_table
from nova_vhpc_lab.bench.network import figures

LINK_MBPS = float(cost_table.PAPER_LINK_MBPS)

PING_PONG_MB_S: Mapping[str, cost_table.Columns] = {
    'native': (109, 199, 199, 248),
    'native-mpich': (109, 218, 202, 240),
    'exported': (109, 197, 326, 408),
    'separate': (109, 161, 190, 194),
    'shared': (108, 124, 136, 126),
}
"""Latency test at 4 MB, as MB/s of all pairs."""

REMOTE_BIDIRECTIONAL_MB_S: Mapping[str, cost_table.Columns] = {
    'native': (124, 296, 337, 408),
    'native-mpich': (124, 273, 350, 361),
    'exported': (121, 183, 370, 415),
    'separate': (115, 183, 177, 168),
    'shared': (115, 119, 105, 111),
}
"""As :data:`cost_table.REMOTE_MB_S`, both directions at once."""

LOCAL_BIDIRECTIONAL_MB_S: Mapping[str, cost_table.Columns] = {
    'native': (1163, 1456),
    'exported': (82, 127),
    'separate': (85, 98),
    'shared': (366, 338),
}
"""As :data:`cost_table.LOCAL_MB_S`, both directions at once."""


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """A table of micro-benchmarks.

    :ivar number: number of the paper's table.
    :ivar figure: name of the figure.
    :ivar where: whether the guests of a pair are on different hosts:
        ``remote`` or ``local``.
    :ivar form: format specification of a value.
    :ivar rows: the paper's values by configuration and number of pairs.
    """

    number: str
    title: str
    figure: str
    where: str
    form: str
    rows: Mapping[str, cost_table.Columns]

    def value(
        self, library: str, configuration: str, pairs: int
    ) -> float | None:
        """Return the paper's value, if it has one.

        :param library: one of the bench's; of MPICH's the paper prints
            native Linux only, else the others' values count for both.
        """
        row = self.rows.get(configuration)
        if library.startswith('mpich'):
            row = self.rows.get(f'{configuration}-mpich', row)
        return None if row is None or pairs > len(row) else row[pairs - 1]


TABLES = (
    Table(
        '1',
        'Latency (us) at 1 byte',
        'latency_us',
        'remote',
        '.0f',
        cost_table.LATENCY_US,
    ),
    Table(
        '2',
        f'Ping-pong (MB/s) at {figures.LONG_BYTES >> 10} KiB',
        'ping_pong_mbs',
        'remote',
        '.1f',
        PING_PONG_MB_S,
    ),
    Table(
        '3',
        'Bandwidth (MB/s) from 4 KiB on',
        'bandwidth_mbs',
        'remote',
        '.1f',
        cost_table.REMOTE_MB_S,
    ),
    Table(
        '4',
        'Bidirectional bandwidth (MB/s) from 4 KiB on',
        'bibandwidth_mbs',
        'remote',
        '.1f',
        REMOTE_BIDIRECTIONAL_MB_S,
    ),
    Table(
        '5',
        'Bandwidth (MB/s) on one host',
        'bandwidth_mbs',
        'local',
        '.0f',
        cost_table.LOCAL_MB_S,
    ),
    Table(
        '5',
        'Bidirectional bandwidth (MB/s) on one host',
        'bibandwidth_mbs',
        'local',
        '.0f',
        LOCAL_BIDIRECTIONAL_MB_S,
    ),
)

FIGURES = {'1x4': '9', '2x4': '10', '8x1': '11', '8x2': '12'}
"""Numbers of the figures with the NAS benchmarks, by cluster."""

PROGRAMS = {
    'alltoall': 'all-to-all (FT)',
    'keys': 'keys (IS)',
    'halo': 'halo (BT, SP, LU, MG)',
    'transpose': 'transpose (CG)',
    'allreduce': 'allreduce (CG)',
}
"""Exchanges, and the NAS benchmarks that consist of them."""


def relative_times(
    entries: Mapping[str, Mapping[str, float]],
) -> dict[str, dict[str, float]]:
    """Return times of exchanges, native Linux's being 1, as in the figures.

    :param entries: figures by configuration, as in the JSON.
    :returns: by exchange and configuration; empty if native Linux was not
        measured.
    """
    base = entries.get(cost_table.NATIVE, {})
    return {
        exchange: {
            configuration: entry[name] / base[name]
            for configuration, entry in entries.items()
            if name in entry
        }
        for exchange in PROGRAMS
        if base.get(name := f'{exchange}_ms')
    }
