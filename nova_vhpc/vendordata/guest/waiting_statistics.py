# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""How the ranks of MPI programs waited, by what each of them counted. Pure.

Part of the program that runs in guests (:mod:`.script`): Python 3.6 and its
standard library.
"""

import json
from collections.abc import Iterable

_COUNTED = ('waits', 'naps', 'nap_ms', 'taken')


def waited(lines: 'Iterable[str]') -> str:
    """Return one line about all ranks.

    :param lines: one line of JSON per rank, as ``libvhpcwait.so`` appends to
        the file that ``VHPC_WAIT_STATS`` names. Ranks of libraries that do
        not count their time (``ms``) make the sum one of milliseconds.
    :raises ValueError: there is none, or one is something else; the text
        names it.
    """
    ranks = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            rank = json.loads(line)
            counted = {name: float(rank[name]) for name in _COUNTED}
            counted['ms'] = float(rank.get('ms', 0))
        except (ValueError, LookupError, TypeError, AttributeError):
            raise ValueError(
                f'line {number} is not what libvhpcwait.so writes: '
                + line.strip()[:60]
            ) from None
        # Launchers have the library, too, and do not wait by it.
        if counted['waits']:
            ranks.append(counted)
    if not ranks:
        raise ValueError('no rank has waited by libvhpcwait.so')
    total = {
        name: sum(rank[name] for rank in ranks) for name in (*_COUNTED, 'ms')
    }
    napped = (
        '{:.0f}% of the time'.format(100 * total['nap_ms'] / total['ms'])
        if all(rank['ms'] for rank in ranks)
        else '{:,.0f} ms'.format(total['nap_ms'])
    )
    return '{} rank{}: waited {:,.0f} calls, napped {}, CPU was taken '.format(
        len(ranks), 's' if len(ranks) > 1 else '', total['waits'], napped
    ) + '{:,.0f} times\n'.format(total['taken'])
