# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Draw the lab's figures as the papers do: normalised execution time.

The execution time of a fixed amount of work under stock Linux is 1, as is that
under Xen's credit scheduler in the ATC paper; smaller is better.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nova_vhpc_lab.bench.common import bar_chart, outputs

TARGETS = {'efficiency': 0.8, 'fairness': 0.8}
"""The project's goals, drawn as a line."""


def normalised_times(
    document: Mapping[str, Any],
) -> dict[str, dict[str, float]]:
    """Return execution times relative to stock, by mix and policy.

    They are geometric means over the clusters of a mix, as speedups are.
    """
    return {
        mix: {
            policy: 1 / entry['speedup']
            for policy, entry in by_policy.items()
            if entry.get('speedup')
        }
        for mix, by_policy in document['mixes'].items()
    }


def draw(document: Mapping[str, Any], directory: Path) -> list[Path]:
    """Write one picture (SVG) per figure, and return the files.

    :param document: the JSON of ``nova-vhpc-bench lab``.
    :param directory: directory for the pictures, created if missing.
    :raises OutputError: a file cannot be written.
    """
    try:
        return _draw(document, directory)
    except OSError as error:
        raise outputs.OutputError(directory, error.strerror or error) from None


def _draw(document: Mapping[str, Any], directory: Path) -> list[Path]:
    directory.mkdir(parents=True, exist_ok=True)
    files = [
        bar_chart.bars(
            normalised_times(document),
            'execution time, stock Linux = 1',
            directory / 'lab-time.svg',
            reference=1.0,
            logarithmic=True,
        )
    ]
    for key, reference in TARGETS.items():
        values = {
            mix: {policy: entry[key] for policy, entry in by_policy.items()}
            for mix, by_policy in document['mixes'].items()
        }
        files.append(
            bar_chart.bars(
                values, key, directory / f'lab-{key}.svg', reference
            )
        )
    return files
