# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What a part of the soak is, and how long it runs."""

import abc
import contextlib
import dataclasses
import logging
import signal
import time
import unittest
from collections.abc import Iterator
from typing import TypeVar

_Host = TypeVar('_Host', bound=unittest.TestCase)


@dataclasses.dataclass(frozen=True)
class Budget:
    """How long a part runs; it does its first input or round in any case.

    :ivar until_s: end, of :func:`time.monotonic`; None if only the count ends
        the part.
    :ivar count: most inputs or rounds; None if only the time ends the part.
    """

    until_s: float | None
    count: int | None = None

    def numbers(self, first: int) -> Iterator[int]:
        """Yield numbers of inputs or rounds from the first one on."""
        number = first
        while self.lasts(number - first):
            yield number
            number += 1

    def lasts(self, done: int) -> bool:
        """Return whether to go on after some inputs or rounds."""
        if done == 0:
            return True
        if self.count is not None and done >= self.count:
            return False
        return self.until_s is None or time.monotonic() < self.until_s


@contextlib.contextmanager
def host_of(case: type[_Host]) -> Iterator[_Host]:
    """Give the host of a functional test, and remove it at the end.

    Guests and mounts end with this process, also by SIGTERM. The log of this
    process, which the test's fixture keeps, is switched off.
    """
    handler = signal.signal(signal.SIGTERM, signal.default_int_handler)
    case.setUpClass()
    host = case()
    try:
        host.setUp()
        logging.disable(logging.CRITICAL)
        yield host
    finally:
        logging.disable(logging.NOTSET)
        host.doCleanups()
        case.tearDownClass()
        signal.signal(signal.SIGTERM, handler)


class Part(abc.ABC):
    """Attacks one thing with seeded inputs or rounds.

    :ivar name: what the command line calls the part.
    :ivar counted: option that gives the count, such as ``rounds``.
    """

    name: str
    counted: str

    @abc.abstractmethod
    def run(self, seed: int, first: int, budget: Budget) -> bool:
        """Print what is found and how to repeat it; True if nothing is.

        :param first: number of the first input or round.
        """

    def repeat(self, seed: int, number: int) -> str:
        """Return how to repeat one input or round."""
        return (
            f'{self.name}: repeat with tools/soak.sh --seed {seed} --first '
            f'{number} --{self.counted} 1 {self.name}'
        )


@contextlib.contextmanager
def unlogged() -> Iterator[None]:
    """Switch off the log of this process in a ``with`` block."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
