# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Pictures with groups of bars, by matplotlib."""

from collections.abc import Mapping
from pathlib import Path


def bars(
    values: Mapping[str, Mapping[str, float]],
    label: str,
    path: Path,
    reference: float,
    logarithmic: bool = False,
) -> Path:
    """Write a picture (SVG) with a group of bars for each key.

    :param values: by group and name of the bar.
    :param label: of the vertical axis.
    :param reference: value at which a line is drawn; bars of a logarithmic
        axis begin there.
    :returns: the file.
    :raises OSError: the file cannot be written.
    """
    import matplotlib

    matplotlib.use('svg')
    # The same figures must give the same file.
    matplotlib.rcParams['svg.hashsalt'] = 'nova-vhpc'
    from matplotlib import pyplot, ticker

    names: list[str] = []
    for by_policy in values.values():
        names.extend(name for name in by_policy if name not in names)
    figure, axes = pyplot.subplots(figsize=(9, 4), layout='constrained')
    width = 0.8 / max(1, len(names))
    # A logarithmic axis has no zero from which bars could rise.
    base = reference if logarithmic else 0.0
    for number, name in enumerate(names):
        axes.bar(
            [place + number * width for place in range(len(values))],
            [
                by_policy.get(name, base) - base
                for by_policy in values.values()
            ],
            width,
            bottom=base,
            label=name,
        )
    axes.axhline(reference, color='grey', linewidth=0.8, linestyle='--')
    axes.set_xticks(
        [place + 0.4 - width / 2 for place in range(len(values))],
        list(values),
    )
    if logarithmic:
        axes.set_yscale('log')
        low, high = axes.get_ylim()
        axes.set_ylim(min(low, base / 2), max(high, base * 2))
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(ticker.NullLocator())
        axes.yaxis.set_major_formatter('{x:g}')
    axes.set_ylabel(label)
    # Inside the axes the legend would hide bars.
    figure.legend(loc='outside upper left', ncols=8, fontsize='small')
    figure.savefig(path, metadata={'Date': None})
    pyplot.close(figure)
    return path
