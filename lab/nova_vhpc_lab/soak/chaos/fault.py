# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A kind of fault, and the list of all kinds."""

import dataclasses
import random
from collections.abc import Callable

from nova_vhpc_lab.soak.chaos.host import Host

Action = Callable[[Host, random.Random], None]


@dataclasses.dataclass(frozen=True)
class Fault:
    """A kind of fault.

    :ivar run: does it to a host, on which the agent may have ended already.
    :ivar is_last: whether the agent does not run any more after it.
    :ivar order: when among the round's faults it comes; operators act last,
        because a guest that starts anew forgets what they did.
    """

    name: str
    run: Action
    is_last: bool
    order: int


FAULTS: dict[str, Fault] = {}


def fault(*, is_last: bool = False, order: int = 0) -> Callable[..., Action]:
    """Return a decorator that adds a kind of fault."""

    def add(action: Action) -> Action:
        name = action.__name__
        FAULTS[name] = Fault(name, action, is_last, 2 if is_last else order)
        return action

    return add


def draw(rng: random.Random) -> list[Fault]:
    """Return one to three kinds of faults, in the order of their happening."""
    count = rng.choice((1, 1, 1, 1, 2, 2, 3))
    drawn = sorted(
        rng.sample(sorted(FAULTS.values(), key=lambda kind: kind.name), count),
        key=lambda kind: kind.order,
    )
    last = [kind for kind in drawn if kind.is_last][:1]
    return [kind for kind in drawn if not kind.is_last] + last
