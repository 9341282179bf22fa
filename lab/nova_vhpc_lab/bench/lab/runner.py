# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Measure all policies on the same running guests, in random order.

On a shared machine the speed of a guest differs by a factor of three from one
minute to the next. Therefore each round measures each policy once, in random
order, and the speed of a cluster alone before and after each policy. Values
are divided by each other only within one round.
"""

import contextlib
import dataclasses
import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping

from nova_vhpc_lab.bench.lab import figures, kbest, mixes, policies, rounds
from nova_vhpc_lab.bench.lab.guest_set import GuestSet
from nova_vhpc_lab.testbed.image import GuestImage

STOCK_SETTLE_S = 1.0
"""Time after which stock Linux has forgotten the policy before."""


@dataclasses.dataclass(frozen=True, slots=True)
class Timing:
    """Lengths of the measurements, in seconds.

    :ivar settle_s: time between the start of a policy and its measurement. The
        agent watches the guests for some seconds before it plays windows.
    :ivar measure_s: one measurement of a policy.
    :ivar alone_s: one measurement of a cluster alone. There is one before and
        after each policy; the best one of a round counts.
    :ivar max_other_load: greatest load of something else, in CPUs, at which a
        round counts.
    """

    settle_s: float = 8.0
    measure_s: float = 4.0
    alone_s: float = 0.7
    max_other_load: float = 0.1


@dataclasses.dataclass(frozen=True, slots=True)
class MixRuns:
    """Result of :func:`measure_mix`.

    :ivar runs: runs by policy, of rounds that count, in order of time.
    :ivar other_loads: load of something else during each round, in CPUs.
    :ivar max_other_load: see :class:`Timing`.
    """

    runs: dict[str, list[figures.Run]]
    other_loads: list[float]
    max_other_load: float

    @property
    def left_out(self) -> list[int]:
        """Numbers of the rounds that do not count."""
        return [
            number
            for number, load in enumerate(self.other_loads, 1)
            if load > self.max_other_load
        ]


def measure_mix(
    mix: mixes.Mix,
    image: GuestImage,
    names: Iterable[str],
    timing: Timing,
    scheme: kbest.KBest,
    say: Callable[[str], None],
    cpus: tuple[int, ...] = (0, 1),
    options: Mapping[str, Mapping[str, str] | None] = policies.POLICIES,
) -> MixRuns:
    """Measure one mix until every policy's K best efficiencies agree.

    A round during which something else took much CPU time is left out. The
    measurement ends when as many rounds were left out as may be measured.

    :param image: kernel and initramfs of the guests.
    :param names: names of the policies, keys of ``options``.
    :param timing: lengths of the measurements.
    :param scheme: when a policy has been measured often enough.
    :param say: called with one line per run.
    :param cpus: the two host CPUs to use.
    :param options: options in ``[vhpc_control]`` by policy.
    :raises LabError: the guests cannot be started, or one has ended.
    :raises AgentError: an agent did not start, or did not restore.
    """
    runs: dict[str, list[figures.Run]] = {name: [] for name in names}
    result = MixRuns(runs, [], timing.max_other_load)
    with GuestSet(mix, image, cpus) as guest_set:
        number = 0
        while len(result.left_out) < max(scheme.m, rounds.MIN_LEFT_OUT):
            todo = [
                name
                for name, done in runs.items()
                if not scheme.done(
                    [figures.efficiency(mix, run) for run in done]
                )
            ]
            if not todo:
                break
            number += 1
            # The machine's speed changes from the first policy to the last.
            random.shuffle(todo)
            speeds = [measure_alone(guest_set, timing)]
            loads_alone = [guest_set.other_load.take()]
            taken: dict[str, _Rates] = {}
            loads: list[float] = []
            for name in todo:
                with contextlib.ExitStack() as stack:
                    if name in policies.NAPPING:
                        stack.enter_context(guest_set.napping())
                    taken[name] = _measure_policy(
                        guest_set, options[name], timing
                    )
                loads.append(guest_set.other_load.take())
                speeds.append(measure_alone(guest_set, timing))
                loads_alone.append(guest_set.other_load.take())
            # Other load can only slow a guest down: the best speed counts, so
            # that one undisturbed measurement of the clusters alone will do.
            other_load = max(*loads, min(loads_alone))
            result.other_loads.append(other_load)
            if other_load > timing.max_other_load:
                why = rounds.left_out_text(other_load, timing.max_other_load)
                say(f'{mix.name:9s} {number:3d} {why}')
                continue
            alone = {
                one.name: max(s[one.name] for s in speeds)
                for one in mix.guests
            }
            for name, rates in taken.items():
                run = figures.Run(
                    number,
                    _relative(rates.work, alone),
                    rates.latencies_ms,
                    rates.window_late_us,
                    rates.cpus,
                )
                runs[name].append(run)
                say(_line(mix, name, run))
    return result


def measure_alone(guest_set: GuestSet, timing: Timing) -> dict[str, float]:
    """Return the work per second of each guest when its cluster runs alone.

    The vCPUs are pinned to different CPUs and have no quota, so this is the
    best possible speed.
    Each is measured itself: emulated guests of one kind differ in speed, in
    two starts of three guests by 10% and by 28%.
    """
    alone: dict[str, float] = {}
    units = [
        tuple(member.name for member in members)
        for members in guest_set.mix.clusters.values()
    ]
    units += [
        (one.name,) for one in guest_set.mix.guests if one.cluster is None
    ]
    for unit in units:
        with (
            guest_set.pinned_apart(unit),
            guest_set.without_quota(unit),
            guest_set.only(unit),
        ):
            time.sleep(0.1)
            rates = guest_set.measure(
                max(timing.alone_s, guest_set.mix.cycle_s)
            )
        alone |= {name: rates[name] for name in unit}
    if guest_set.web is not None:
        guest_set.web.take()
    return alone


@dataclasses.dataclass(frozen=True, slots=True)
class _Rates:
    """Results of one measurement; see :class:`.figures.Run`."""

    work: Mapping[str, float]
    latencies_ms: tuple[float, ...]
    window_late_us: float | None
    cpus: Mapping[str, float]


def _measure_policy(
    guest_set: GuestSet, options: Mapping[str, str] | None, timing: Timing
) -> _Rates:
    """Measure all guests under one policy.

    :param options: options of the policy's agent; None for no agent.
    """
    late_us: float | None = None
    with contextlib.ExitStack() as stack:
        stack.enter_context(guest_set.host_load())
        agent: policies.Agent | None = None
        if options is not None:
            agent = policies.Agent(
                guest_set.root / 'agent',
                guest_set.uri,
                options,
                guest_set.cpus,
                guest_set.overhead_group,
            )
            stack.enter_context(agent)
        time.sleep(STOCK_SETTLE_S if options is None else timing.settle_s)
        if guest_set.web is not None:
            guest_set.web.take()
        before = guest_set.cpu_seconds()
        began = time.monotonic()
        rates = guest_set.measure(timing.measure_s)
        seconds = time.monotonic() - began
        cpus = {
            name: (now - before[name]) / seconds
            for name, now in guest_set.cpu_seconds().items()
        }
        latencies = guest_set.web.take() if guest_set.web is not None else []
        if agent is not None:
            late_us = _late_us(agent.status())
    return _Rates(rates, tuple(latencies), late_us, cpus)


def _late_us(status: Mapping[str, object] | None) -> float | None:
    """Return how late gang windows begin, in us; None without windows."""
    windows = status.get('windows') if status else None
    if isinstance(windows, dict) and windows.get('playing'):
        late = windows.get('late_us')
        return float(late) if isinstance(late, int | float) else None
    return None


def _line(mix: mixes.Mix, name: str, run: figures.Run) -> str:
    """Return the line that reports one run."""
    text = (
        f'{mix.name:9s} {run.round:3d} {name:8s} '
        f'efficiency {figures.efficiency(mix, run):5.2f} '
        f'fairness {figures.fairness(mix, run):4.2f}'
    )
    if any(not one.parallel for one in mix.guests):
        text += f' others {figures.others_progress(mix, run):5.2f}'
    if run.latencies_ms:
        middle = statistics.median(run.latencies_ms)
        text += f' latency {middle:6.2f} ms'
    if run.window_late_us is not None:
        text += f' late {run.window_late_us / 1000:4.1f} ms'
    return text


def _relative(
    rates: Mapping[str, float], alone: Mapping[str, float]
) -> dict[str, float]:
    """Return the work of each guest as a fraction of its work alone."""
    return {
        name: rate / alone[name] if alone.get(name) else 0.0
        for name, rate in rates.items()
    }
