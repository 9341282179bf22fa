# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Run the soak for some minutes: tools/soak.sh calls it."""

import argparse
import random
import signal
import sys
import time
from collections.abc import Mapping, Sequence

from nova_vhpc_lab.soak import (
    clock,
    encap_ips,
    fuzzer,
    night,
    parsers,
    publication,
    scheduler,
    slots,
)
from nova_vhpc_lab.soak.chaos.part import Chaos
from nova_vhpc_lab.soak.part import Budget, Part

PARTS: Mapping[str, Part] = {
    part.name: part
    for part in (
        *map(fuzzer.Fuzzer, parsers.PARSERS.values()),
        publication.Publication(),
        scheduler.Scheduler(),
        clock.Clock(),
        slots.Slots(),
        encap_ips.EncapIps(),
        Chaos(),
        night.Night(),
    )
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 1 if a part found a fault."""
    options = argparse.ArgumentParser(prog='tools/soak.sh')
    options.add_argument('--minutes', type=float, default=30.0)
    options.add_argument('--seed', type=int)
    options.add_argument('--first', type=int, default=0)
    for counted in sorted({part.counted for part in PARTS.values()}):
        options.add_argument(f'--{counted}', type=int)
    options.add_argument('parts', nargs='*', metavar='part')
    given = options.parse_args(arguments)
    names = given.parts or list(PARTS)
    for name in names:
        if name not in PARTS:
            options.error(f"no part '{name}'; there are: {' '.join(PARTS)}")
    seed = random.randrange(10**9) if given.seed is None else given.seed
    print(f'seed {seed}', flush=True)
    passed = []
    for name in names:
        part = PARTS[name]
        # A part that is counted needs the time that it needs.
        count = getattr(given, part.counted, None)
        until_s = time.monotonic() + given.minutes * 60 / len(names)
        budget = Budget(until_s if count is None else None, count)
        try:
            passed.append(part.run(seed, given.first, budget))
        except KeyboardInterrupt:
            print(f'soak: interrupted in {name}', file=sys.stderr)
            return 128 + signal.SIGINT
    return 0 if all(passed) else 1


if __name__ == '__main__':
    sys.exit(main())
