# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Run the program in all network configurations, round by round."""

import dataclasses
import os
import sys
from collections.abc import Mapping, Sequence

from nova_vhpc_lab.bench.network import figures, libraries, trial
from nova_vhpc_lab.bench.network import layout as layouts
from nova_vhpc_lab.testbed import errors

Runs = dict[str, list[figures.Run]]
"""Runs by configuration, one for each round."""


@dataclasses.dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of one cluster with one library.

    :ivar runs: runs on all CPUs.
    :ivar with_spare: runs with a CPU for packet work alone; empty if these
        were not asked for.
    :ivar without_spare: runs on the other CPUs.
    :ivar failures: what failed, by configuration.
    """

    runs: Runs = dataclasses.field(default_factory=dict)
    with_spare: Runs = dataclasses.field(default_factory=dict)
    without_spare: Runs = dataclasses.field(default_factory=dict)
    failures: dict[str, str] = dataclasses.field(default_factory=dict)

    def drop(self, configuration: str, error: errors.LabError) -> None:
        """Forget a configuration, in which the program failed."""
        self.failures[configuration] = str(error)
        for runs in (self.runs, self.with_spare, self.without_spare):
            runs.pop(configuration, None)


def all_terms(
    link_mbps: float, seconds: float, spare_cpu: bool
) -> list[trial.Terms]:
    """Return the terms of the kinds of runs of :class:`Measured`.

    :param spare_cpu: whether to measure also with and without a spare CPU.
    :raises LabError: there is only one CPU.
    """
    terms = [trial.Terms(link_mbps, seconds)]
    if not spare_cpu:
        return terms
    *guests, last = sorted(os.sched_getaffinity(0))
    if not guests:
        raise errors.LabError('--spare-cpu needs two CPUs')
    for packets in ([last], guests):
        cpus = trial.CpuUse(tuple(guests), tuple(packets))
        terms.append(trial.Terms(link_mbps, seconds, cpus=cpus))
    return terms


def measure(
    cluster: layouts.Cluster,
    installed: Mapping[str, libraries.Installed],
    configurations: Sequence[str],
    rounds: int,
    terms: Sequence[trial.Terms],
) -> dict[str, Measured]:
    """Return what was measured of one cluster by library.

    In every round each configuration runs once, so that they are compared
    while the machine is the same.

    :param terms: result of :func:`all_terms`.
    """
    measured = {name: Measured() for name in installed}
    for number in range(rounds):
        for name, library in installed.items():
            one = measured[name]
            for configuration in configurations:
                if configuration in one.failures:
                    continue
                where = f'{cluster}, {name}, {configuration}'
                try:
                    _run_once(one, cluster, configuration, library, terms)
                except errors.LabError as error:
                    one.drop(configuration, error)
                    print(f'{where}: {error}', file=sys.stderr, flush=True)
                    continue
                print(
                    f'round {number + 1}, {where}: '
                    + _brief(one.runs[configuration][-1], cluster),
                    flush=True,
                )
    return measured


def _run_once(
    measured: Measured,
    cluster: layouts.Cluster,
    configuration: str,
    library: libraries.Installed,
    terms: Sequence[trial.Terms],
) -> None:
    """Run the program once on each of the terms.

    :raises LabError: the program fails or hangs.
    """
    kinds = (measured.runs, measured.with_spare, measured.without_spare)
    for runs, of_kind in zip(kinds, terms, strict=False):
        with trial.Trial(cluster, configuration, of_kind) as made:
            run = figures.run_of(made.run(library))
        runs.setdefault(configuration, []).append(run)


def _brief(run: figures.Run, cluster: layouts.Cluster) -> str:
    return ', '.join(
        f'{run[figure]:.4g} {name.replace("_", " ")}'
        for name, figure in figures.main_figures(cluster).items()
    )
