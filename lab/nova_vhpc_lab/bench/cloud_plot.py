# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Draw execution times in simulated clouds as the ATC paper's figures."""

from pathlib import Path

from nova_vhpc_lab.bench import cloud_times
from nova_vhpc_lab.bench.common import bar_chart, outputs


def draw(document: cloud_times.Document, directory: Path) -> list[Path]:
    """Write one picture (SVG) per figure, and return the files.

    :param document: the JSON of ``nova-vhpc-bench cloud``.
    :param directory: directory for the pictures, created if missing.
    :raises OutputError: a file cannot be written.
    """
    kernel = document['kernel']
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return [
            bar_chart.bars(
                {
                    row: {policy: time for (_, policy), time in times.items()}
                    for row, times in figure.rows.items()
                },
                f'execution time, stock scheduler of {kernel.title()} = 1',
                directory / f'cloud-{kernel}-{figure.name}.svg',
                reference=1.0,
                logarithmic=True,
            )
            for figure in cloud_times.figures([document])
        ]
    except OSError as error:
        raise outputs.OutputError(directory, error.strerror or error) from None
