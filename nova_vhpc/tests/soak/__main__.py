# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Run the soak for some minutes: tools/soak.sh calls it.

An input depends on the seed, the parser's name and the input's number only,
so that a fault that was found can be repeated alone.
"""

import argparse
import collections
import logging
import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from nova_vhpc.tests.soak import parsers

CPU_LIMIT_S = 5.0
"""CPU time for one input; CPU time, because a busy machine is no fault."""

MEMORY_LIMIT = 4 << 30
"""Address space of the soak, in bytes."""


class TooSlow(BaseException):
    """A parser used too much CPU time; no parser can catch this."""


def _interrupt(signal_number: int, frame: Any) -> None:
    raise TooSlow(f'more than {CPU_LIMIT_S} s of CPU time')


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


def _fuzz(name: str, seed: int, first: int, until_s: float) -> bool:
    parser = parsers.PARSERS[name]
    faults: collections.Counter[str] = collections.Counter()
    number = first
    while number == first or time.monotonic() < until_s:
        fault = execute(parser, seed, number)
        if fault is not None:
            # Where it was raised tells faults apart, what it says does not.
            place = ''.join(
                line for line in fault.splitlines() if 'File "' in line
            )
            if place not in faults:
                print(
                    f'{fault}{name}: repeat with tools/soak.sh --seed {seed} '
                    f'--first {number} --minutes 0 {name}',
                    flush=True,
                )
            faults[place] += 1
        number += 1
    print(
        f'{name}: {number - first} inputs, {faults.total()} failed, '
        f'{len(faults)} different faults',
        flush=True,
    )
    return not faults


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 1 if a parser failed."""
    options = argparse.ArgumentParser(prog='tools/soak.sh')
    options.add_argument('--minutes', type=float, default=30.0)
    options.add_argument('--seed', type=int)
    options.add_argument('--first', type=int, default=0)
    options.add_argument('parts', nargs='*', metavar='part')
    given = options.parse_args(arguments)
    parts = given.parts or list(parsers.PARSERS)
    for part in parts:
        if part not in parsers.PARSERS:
            options.error(
                f"no part '{part}'; there are: {' '.join(parsers.PARSERS)}"
            )
    seed = random.randrange(10**9) if given.seed is None else given.seed
    print(f'seed {seed}', flush=True)
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGVTALRM, _interrupt)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    each_s = given.minutes * 60 / len(parts)
    passed = [
        _fuzz(part, seed, given.first, time.monotonic() + each_s)
        for part in parts
    ]
    return 0 if all(passed) else 1


if __name__ == '__main__':
    sys.exit(main())
