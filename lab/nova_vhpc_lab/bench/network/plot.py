# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Draw times of exchanges as figures 9 to 12 of HPCVirt'09."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nova_vhpc_lab.bench.common import bar_chart, outputs
from nova_vhpc_lab.bench.network import layout as layouts
from nova_vhpc_lab.bench.network import paper


def draw(document: Mapping[str, Any], directory: Path) -> list[Path]:
    """Write one picture (SVG) per cluster and library; return the files.

    :param document: the JSON of ``nova-vhpc-bench network``. What native
        hosts did not run has no picture.
    :param directory: directory for the pictures, created if missing.
    :raises OutputError: a file cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return [
            bar_chart.bars(
                {
                    # Native Linux is the line from which the bars rise.
                    paper.PROGRAMS[name]: {
                        row: time
                        for row, time in one.items()
                        if row != layouts.NATIVE
                    }
                    for name, one in times.items()
                },
                f'time of an exchange, native = 1; {cluster}, {library}',
                directory / file_name(cluster, library),
                reference=1.0,
                logarithmic=True,
            )
            for cluster, by_library in document['clusters'].items()
            for library, entries in by_library.items()
            if (times := paper.relative_times(entries))
        ]
    except OSError as error:
        raise outputs.OutputError(directory, error.strerror or error) from None


def file_name(cluster: str, library: str) -> str:
    """Return the name of a picture, with the number of the paper's figure."""
    number = paper.FIGURES.get(cluster)
    figure = cluster if number is None else f'figure-{number}'
    return f'network-{figure}-{library}.svg'
