# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""Tables that ``nova-vhpc-bench cloud`` prints."""

from collections.abc import Mapping, Sequence
from typing import Any

from nova_vhpc_lab.sim.cloud import npc09

Policies = Mapping[str, Mapping[str, Any]]
"""Figures of one scenario, by policy."""

_COLUMNS = (
    ('geomean', 'geomean'),
    ('worst', 'worst'),
    ('of bound', 'of_bound'),
    ('worst', 'of_bound_worst'),
    ('x stock', 'of_stock'),
    ('fair', 'independents_of_fair'),
    ('worst', 'independents_of_fair_worst'),
    ('loss', 'loss'),
    ('resp.', 'response_ratio'),
)


def show(name: str, seeds: int, policies: Policies) -> None:
    """Print the figures of one scenario."""
    print(f'\n{name}, {seeds} seeds')
    print(
        f'{"":<10}{"clusters":>18}{"":>18}{"":>9}{"singles":>18}'
        f'{"not parallel":>18}'
    )
    print(f'{"":<10}' + ''.join(f'{title:>9}' for title, _ in _COLUMNS))
    for policy, figures in policies.items():
        cells = ''.join(
            f'{"":>9}' if figures[key] is None else f'{figures[key]:>9.3f}'
            for _, key in _COLUMNS
        )
        print(f'{policy:<10}{cells}')
    for policy, figures in policies.items():
        parts = ' '.join(
            f'{cluster} {part:.2f}'
            for cluster, part in figures['clusters'].items()
        )
        print(f'{policy}: {parts}', flush=True)


def show_npc09(
    seeds: int, names: Sequence[str], scenarios: Mapping[str, Policies]
) -> None:
    """Print the speedups of all cases of ``npc09`` in one table.

    :param names: of the policies.
    :param scenarios: figures of all scenarios, by their JSON keys.
    """

    print(f'\nnpc09, {seeds} seeds: speedup over one CPU, of {npc09.CPUS}')
    print(
        f'{"":<8}{"":<11}{"vCPUs/CPU":>9}'
        + ''.join(f'{name:>9}' for name in names)
        + f'{"model":>9}'
    )
    for case in npc09.cases():
        policies = scenarios[case.name]
        speedups = [npc09.speedup(policies[n]['of_bound']) for n in names]
        print(
            f'{case.program:<8}{case.kind:<11}{case.overcommit:>9g}'
            + ''.join(f'{one:>9.2f}' for one in speedups)
            + f'{case.model_speedup():>9.2f}'
        )
