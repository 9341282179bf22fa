# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Long runs of plans that take effect, with invalid input at times.

A threshold needs 50 samples, and the guard some periods: only long runs reach
the plans made with them.
"""

import collections
import dataclasses
import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any

import hypothesis
from hypothesis import strategies as st

from nova_vhpc.control import config as control_config
from nova_vhpc.control import controller, model
from nova_vhpc.tests import long
from nova_vhpc.tests.unit.control import (
    builders,
    invalid_input,
    live_host,
    plan_checks,
)

POLICIES = tuple(itertools.product(builders.SLICES, builders.PINNINGS))
HOSTS = tuple(itertools.product(range(len(POLICIES)), range(8)))
"""Index of a pair of policies, and seed of the host that they control."""

POOLS = (
    *((None, None),) * 4,
    (frozenset((0,)), None),
    (None, frozenset((2, 3))),
    (frozenset((0, 1)), frozenset((1, 2))),
    (frozenset((0,)), frozenset((0, 1))),
)
"""CPUs of the I/O pool and of the computing pool, None for any."""

ODD_TICKS = st.lists(invalid_input.CHANGES, max_size=4)
STRETCHES = st.lists(
    st.tuples(ODD_TICKS, st.integers(60, 120)), min_size=1, max_size=2
)
"""One or two times: some ticks of invalid input, then many valid ones."""

INTERESTING = {
    'a threshold is known': 1_000,
    'an ATC slice is written': 500,
    'a slice is taken back': 100,
    'a DSS slice is written': 100,
    'a share is kept at another period': 2_000,
    'in the I/O pool': 500,
    'in the I/O pool by its own I/O': 200,
    'out of the I/O pool in the I/O phase': 500,
    'pins are written': 100,
    'windows are played': 30,
    'windows leave time to others': 10,
    'the I/O pool is lent out': 500,
    'the I/O pool is not lent out': 500,
}
"""Situations that the runs must reach, and in how many plans at least."""


def make_config(source: random.Random) -> dict[str, Any]:
    """Return a random configuration of the controller."""
    io, computing = source.choice(POOLS)
    return {
        'guard': source.random() < 0.5,
        'leave_rule': source.choice(control_config.LEAVE_RULES),
        'pool_shrink_periods': source.choice((5, 5, 100)),
        'rebalance_periods': source.choice((5, 50)),
        'share_slices': source.random() < 0.5,
        'io_pool_cpus': io,
        'computing_pool_cpus': computing,
    }


class Run:
    """A random host, and controllers with one configuration for it."""

    def __init__(self, policies: int, seed: int) -> None:
        source = random.Random(f'{policies} {seed}')
        self._policies = POLICIES[policies]
        self._config = make_config(source)
        self._setup = live_host.make_setup(source)

    def controller(self) -> controller.Controller:
        """Return a new controller."""
        return builders.make(*self._policies, **self._config)

    def play(
        self, ticks: Sequence[invalid_input.Change | None]
    ) -> Iterator[tuple[model.HostView, model.Plan]]:
        """Yield each view and its plan, which is in force in the next view.

        :param ticks: the invalid input of each tick, or None.
        """
        subject = self.controller()
        host = live_host.LiveHost(self._setup)
        for odd in ticks:
            view = host.view()
            if odd is not None:
                view = odd.spoil(view)
            plan = subject.decide(view)
            yield view, plan
            host.apply(plan)


class RunTest(plan_checks.PlanTestCase):
    """All pairs of policies, on hosts of all kinds."""

    def test_plans_stay_safe(self):
        seen: collections.Counter[str] = collections.Counter()
        for policies, seed in HOSTS:
            self.play_some(policies, seed, seen)
        for what, least in INTERESTING.items():
            self.assertGreaterEqual(seen[what], least, what)

    def play_some(self, policies, seed, seen):
        """Play runs with drawn invalid input on the one host of a seed."""

        def play(stretches, last):
            ticks = []
            for odd, sound in stretches:
                ticks += [*odd, *(None,) * sound]
            run = Run(policies, seed)
            twin = run.controller()
            for view, plan in run.play([*ticks, *last]):
                self.check(view, plan)
                self.assertEqual(plan, twin.decide(view))
                seen.update(interesting(view, plan))

        # The first example is always the simplest one, without invalid input.
        # Shrinking a failing run of hundreds of ticks would take minutes.
        drawn = hypothesis.settings(
            max_examples=long.long(2, 3), phases=[hypothesis.Phase.generate]
        )(hypothesis.given(STRETCHES, ODD_TICKS)(play))
        if hypothesis.settings.default.derandomize:
            # Otherwise the same input would be drawn for every host.
            drawn = hypothesis.seed(f'{policies} {seed}')(drawn)
        drawn()

    def test_plans_do_not_depend_on_clocks(self):
        clocks = random.Random(1)
        for policies, seed in HOSTS:
            run = Run(policies, seed)
            jumping = run.controller()
            for view, plan in run.play((None,) * 130):
                elsewhen = dataclasses.replace(
                    view,
                    tick=clocks.randint(-5, 10**9),
                    now_us=clocks.randint(-(10**15), 10**15),
                    wall_us=clocks.randint(-(10**15), 10**15),
                )
                self.assertEqual(plan, jumping.decide(elsewhen))


def interesting(view: model.HostView, plan: model.Plan) -> Iterator[str]:
    """Yield the keys of :data:`INTERESTING` that a plan is an example of."""
    sources: dict[str, model.VmView] = {}
    for one in view.vms:
        sources.setdefault(one.uuid, one)
    for uuid, planned in plan.vms.items():
        yield from _of_vm(sources[uuid], planned)
    if plan.windows is not None:
        yield 'windows are played'
        if not all(turn.favoured for turn in plan.windows.turns):
            yield 'windows leave time to others'
    if plan.pools is not None:
        yield f'the I/O pool is {"" if plan.pools.lent else "not "}lent out'


def _of_vm(source: model.VmView, planned: model.VmPlan) -> Iterator[str]:
    original, period_us = source.original, planned.tune.period_us
    if original.share is not None and period_us != original.period_us:
        yield 'a share is kept at another period'
    if planned.threshold_events is not None:
        yield 'a threshold is known'
    if planned.reason == 'I/O pool':
        yield 'in the I/O pool'
        if planned.threshold_events and source.io_pool == 'auto':
            yield 'in the I/O pool by its own I/O'
    elif planned.phase == model.Phase.IO:
        yield 'out of the I/O pool in the I/O phase'
    writes, was_us = planned.writes, source.in_force.period_us
    if writes is None:
        return
    if writes.vcpu_pins is not None:
        yield 'pins are written'
    if writes.period_us is None:
        return
    if planned.reason in ('ATC', 'DSS') and planned.slice_us is not None:
        article = 'an' if planned.reason == 'ATC' else 'a'
        yield f'{article} {planned.reason} slice is written'
    if planned.reason.startswith('ATC') and writes.period_us > (was_us or 0):
        yield 'a slice is taken back'
