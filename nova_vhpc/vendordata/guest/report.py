# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A report of a cluster, for people. Pure.

Part of the program that runs in guests (:mod:`.script`): Python 3.6 and its
standard library.
"""

from typing import Any

from nova_vhpc.vendordata.guest.launcher_files import listed_members


def report(answer: 'dict[str, Any]') -> str:
    """Return what the cluster is and how it runs, for people."""
    cluster = answer['cluster']
    listed = listed_members(answer)
    lines = [
        'cluster {} ({}), network configuration {}'.format(
            plain(cluster['name']),
            cluster['id'],
            cluster['network'] or 'not set',
        ),
        '{} of {} members are ready: {}'.format(
            len(listed),
            cluster['expected'],
            'complete' if cluster['complete'] else 'NOT complete',
        ),
        '',
    ]
    rows = [['rank', 'name', 'address', 'vcpus', 'status', 'distance']]
    rows[0] += ['held up', 'windows', 'over-commit']
    for member in answer['members']:
        live = member.get('live') or {}
        mark = '*' if member['rank'] == answer['rank'] else ''
        rows.append(
            [
                '{}{}'.format(member['rank'], mark),
                plain(member['name']),
                member['address'] or '-',
                str(member['vcpus']),
                member['status'],
                member['distance'],
                _part(live.get('held_up_s'), live.get('run_s'))
                + (' now' if live.get('held_up_now') else ''),
                _seconds(live.get('in_windows_s')),
                _number(live.get('overcommit')),
            ]
        )
    widths = [max(map(len, column)) for column in map(list, _columns(rows))]
    lines += [
        '  '.join(
            cell.ljust(widths[index]) for index, cell in enumerate(row)
        ).rstrip()
        for row in rows
    ]
    problems = []
    for member in answer['members']:
        live = member.get('live') or {}
        if live.get('never_sleeps') and live.get('held_up_now'):
            problems.append(
                '{}: its vCPUs never sleep and are held up: let programs '
                'nap while they wait, by nova-vhpc-hosts env --wait'.format(
                    plain(member['name'])
                )
            )
        problem = live.get('problem')
        if problem:
            problems.append(
                '{}: {}'.format(plain(member['name']), plain(problem))
            )
    if problems:
        lines += ['', *problems]
    return '\n'.join(lines) + '\n'


def _columns(rows: 'list[list[str]]') -> 'list[list[str]]':
    return [[row[index] for row in rows] for index in range(len(rows[0]))]


def _part(held_up_s: 'float | None', run_s: 'float | None') -> str:
    """Return which part of the time that vCPUs wanted they were held up."""
    if held_up_s is None or run_s is None or not held_up_s + run_s:
        return '?'
    return f'{100 * held_up_s / (held_up_s + run_s):.0f}%'


def _seconds(value: 'float | None') -> str:
    return '?' if value is None else f'{value:.0f} s'


def _number(value: 'float | None') -> str:
    return '?' if value is None else f'{value:.1f}'


def plain(text: str) -> str:
    """Return text without what could control the terminal."""
    return ''.join(char if char.isprintable() else '?' for char in text)
