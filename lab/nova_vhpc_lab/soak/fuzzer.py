# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Feed a parser with damaged inputs.

An input depends on the seed, the parser's name and the input's number only,
so that a fault that was found can be repeated alone.
"""

import collections
import contextlib
import random
import resource
import signal
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from nova_vhpc_lab.soak import part

CPU_LIMIT_S = 5.0
"""CPU time for one input; CPU time, because a busy machine is no fault."""

MEMORY_LIMIT = 4 << 30
"""Address space of the soak while parsers run, in bytes."""


class TooSlow(BaseException):
    """A parser used too much CPU time; no parser can catch this."""


def _interrupt(signal_number: int, frame: Any) -> None:
    raise TooSlow(f'more than {CPU_LIMIT_S} s of CPU time')


@contextlib.contextmanager
def _limits() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGVTALRM, _interrupt)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, hard))
    try:
        with part.unlogged():
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGVTALRM, handler)


def execute(
    parser: Callable[[random.Random], None], seed: int, number: int
) -> str | None:
    """Give one input to a parser, and return its traceback if it fails."""
    rng = random.Random(f'{seed} {parser.__name__} {number}')
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_LIMIT_S)
    try:
        parser(rng)
    except (Exception, TooSlow):
        return traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return None


class Fuzzer(part.Part):
    """Gives damaged inputs to one parser.

    :param parser: makes one input, parses it, and raises what is a fault.
    """

    counted = 'inputs'

    def __init__(self, parser: Callable[[random.Random], None]) -> None:
        self.name = parser.__name__
        self._parser = parser

    def run(self, seed: int, first: int, budget: part.Budget) -> bool:
        """Print each different fault once; return whether there is none."""
        faults: collections.Counter[str] = collections.Counter()
        inputs = 0
        with _limits():
            for number in budget.numbers(first):
                fault = execute(self._parser, seed, number)
                if fault is not None:
                    # Where it was raised tells faults apart, not what it says.
                    place = ''.join(
                        line for line in fault.splitlines() if 'File "' in line
                    )
                    if place not in faults:
                        print(fault + self.repeat(seed, number), flush=True)
                    faults[place] += 1
                inputs += 1
        print(
            f'{self.name}: {inputs} inputs, {faults.total()} failed, '
            f'{len(faults)} different faults',
            flush=True,
        )
        return not faults
