# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Damage valid inputs of parsers, by a seeded generator."""

import copy
import json
import random
from typing import Any

SCALARS: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**30, 0.5, -0.0),
    *(1e308, float('nan'), float('inf'), '', 'a', '0', '-1', '1e9'),
    *('9' * 20, '9' * 5000, '\x00', '\n', '\ud800', 'x' * 5000, '0-65535'),
    *('0-99999999999', '^1', '1-0', '%s', '../..', '٣', '²', ' 1 ', '1_0'),
)
"""Values that parsers of numbers, names and CPU sets take wrongly."""

SIGNS = '0123456789,-^.:/_ <>&"\'=\n\t\x00\x1b[]{}'


def text(rng: random.Random, most: int) -> str:
    """Return random text: printable, of signs, or of any code point."""
    alphabet = rng.choice(('printable', 'signs', 'unicode'))
    if alphabet == 'signs':
        return ''.join(rng.choices(SIGNS, k=rng.randint(0, most)))
    low, high = (32, 126) if alphabet == 'printable' else (0, 0x10FFFF)
    return ''.join(
        chr(rng.randint(low, high)) for _ in range(rng.randint(0, most))
    )


def value(rng: random.Random, depth: int = 0) -> Any:
    """Return a random JSON value."""
    kind = rng.randint(0, 9)
    if kind < 6 or depth > 3:
        return rng.choice(SCALARS)
    if kind == 6:
        return rng.choice((1, -1)) * rng.getrandbits(72)
    if kind == 7:
        return text(rng, 40)
    items = [value(rng, depth + 1) for _ in range(rng.randint(0, 4))]
    return items if kind == 8 else {text(rng, 6): item for item in items}


def document(rng: random.Random, valid: Any) -> Any:
    """Return a copy of a JSON document with up to four faults."""
    damaged = copy.deepcopy(valid)
    for _ in range(rng.randint(1, 4)):
        node, parent, key = damaged, None, None
        while node and isinstance(node, dict | list):
            parent = node
            key = (
                rng.choice(sorted(node))
                if isinstance(node, dict)
                else rng.randrange(len(node))
            )
            node = node[key]
            if rng.random() < 0.25:
                break
        if parent is None:
            return value(rng)
        if rng.random() < 0.2:
            del parent[key]
        else:
            parent[key] = value(rng)
    return damaged


def characters(rng: random.Random, valid: str) -> str:
    """Return the text with up to four insertions, deletions or cuts."""
    damaged = valid
    for _ in range(rng.randint(1, 4)):
        at = rng.randint(0, len(damaged))
        kind = rng.randint(0, 6)
        if kind < 3:
            damaged = damaged[:at] + text(rng, 5) + damaged[at:]
        elif kind < 6:
            damaged = damaged[:at] + damaged[at + rng.randint(1, 30) :]
        else:
            damaged = damaged[:at]
    return damaged


def encoded(rng: random.Random, valid: Any) -> str:
    """Return damaged JSON: either what it says, or how it is spelled."""
    if rng.random() < 0.5:
        return json.dumps(document(rng, valid))
    return characters(rng, json.dumps(valid))
