# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A Placement that answers late, with errors or with nonsense."""

import collections
import copy
import random
import threading
from collections.abc import Mapping
from typing import Any

_NONSENSE: tuple[Any, ...] = (
    *(None, [], 'text', 7, {}),
    {'provider_summaries': None},
    {'provider_summaries': []},
    {'provider_summaries': {'a': {}}},
    {'resource_providers': [{}]},
)


class Placement:
    """A Placement that misbehaves, unless it is healthy.

    :param seed: seed of its answers.
    :param body: answer to the read of all uplinks.
    :param names: answer to the read of their names.
    :ivar answers: number of answers of each kind.
    """

    def __init__(
        self, seed: int, body: Mapping[str, Any], names: Mapping[str, Any]
    ) -> None:
        self._seed = seed
        self._body = body
        self._names = names
        self._lock = threading.Lock()
        self._reads = 0
        self.answers: collections.Counter[str] = collections.Counter()
        self.healthy = threading.Event()

    def get(self, path: str, version: str) -> Any:
        """Answer a read of the cache."""
        with self._lock:
            self._reads += 1
            rng = random.Random(f'{self._seed} placement {self._reads}')
            kind = rng.choice(
                ('good', 'good', 'error', 'late', 'nonsense', 'half')
            )
            if self.healthy.is_set():
                kind = 'good'
            self.answers[kind] += 1
        if kind == 'error':
            raise RuntimeError('Placement answered 500')
        if kind == 'late':
            # Longer than refresh_timeout.
            self.healthy.wait(3)
        if kind == 'nonsense':
            return rng.choice(_NONSENSE)
        if 'candidates' not in path:
            return self._names
        return self._half(rng) if kind == 'half' else self._body

    def _half(self, rng: random.Random) -> Any:
        body = copy.deepcopy(self._body)
        summaries = body['provider_summaries']
        for uuid in list(summaries):
            lost = rng.choice(('', '', '', 'all', 'traits', 'resources'))
            if lost == 'all':
                del summaries[uuid]
            elif lost:
                del summaries[uuid][lost]
        return body
