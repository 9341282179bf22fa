# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Say what an explanation found, as ``openstack vhpc explain`` does."""

from collections.abc import Iterator

from nova_vhpc.explain import model, steering
from nova_vhpc.scheduler.planner import host_weights


def verdict(host: model.HostAnswer) -> str:
    """Return in a few words why a host is rejected, or that it passes."""
    if host.reason is not None:
        return f'{host.rejected_by}: {host.reason}'
    if not host_weights.is_planned(host.multiplier):
        return f'passes, not planned: weight multiplier {host.multiplier:g}'
    if host.unknown:
        return 'passes, topology unknown'
    if host.devices_unknown:
        return 'passes, its PCI devices are unknown here'
    if host.planned_uplinks:
        return 'passes: ' + ', '.join(
            f'{uplink}, rail {rail or "unknown"}'
            for uplink, rail in zip(
                host.planned_uplinks, host.rails, strict=False
            )
        )
    if host.uplinks:
        return 'passes: ' + ', '.join(host.uplinks[:2])
    return 'passes'


def of_answer(answer: model.Answer) -> Iterator[str]:
    """Yield all that an answer says but the table of hosts."""
    yield from answer.notes
    for flaw in answer.flaws:
        yield f'Wrong with the flavor: {flaw}'
    yield from _moves(answer)
    placement = answer.placement
    if placement.infeasible_reason is not None:
        yield f'No plan: {placement.infeasible_reason}'
        return
    yield (
        f'Plan: {len(placement.assignments)} host(s), smallest tier that '
        f'holds all: {placement.tier.name.lower()}, predicted cost '
        f'{placement.cost:.0f} us per message.'
    )
    if answer.expected:
        yield (
            f'The plan has room for {answer.expected} member(s) that are '
            'still to come.'
        )
    if placement.own_overcommit > 1.0:
        yield (
            'Members share CPUs with each other, up to '
            f'{placement.own_overcommit:.2f} of the vCPUs of the cluster per '
            'CPU of a host, and take turns: without that, they do not fit.'
        )
    yield from _steering(answer)
    if answer.slowdown is not None:
        yield (
            'Predicted run time of an all-to-all program over native '
            f'Linux under one switch: {answer.slowdown:.2f}.'
        )


def _steering(answer: model.Answer) -> Iterator[str]:
    """Yield what makes packets take the uplinks of the plan's claims."""
    planned = [host for host in answer.hosts if host.planned]
    for way, words in steering.WORDS.items():
        count = sum(host.steered_by == way for host in planned)
        if count:
            yield (
                f"Members' packets take their uplinks on {count} host(s) of "
                f'the plan {words}.'
            )
    unsteered = [host for host in planned if host.unsteered is not None]
    if unsteered:
        yield (
            f'No claim steers packets on {len(unsteered)} host(s) of the '
            f'plan; {unsteered[0].name}, for one: {unsteered[0].unsteered}.'
        )
    stray = answer.placement.stray_share
    if stray:
        yield (
            f'Members are on different rails: {stray:.0%} of the frames '
            'between hosts leave by uplinks that the cluster has not claimed '
            'for them.'
        )


def _moves(answer: model.Answer) -> Iterator[str]:
    """Yield what moves of running members would gain."""
    for step in answer.moves:
        tier = step.placement.tier.name.lower()
        cost = f'{step.placement.cost:.0f} us per message, tier {tier}'
        if not step.moves:
            yield f'As they run now: {cost}.'
            continue
        leave, join = (
            ', '.join(f'{n} {name}' for name, n in sorted(hosts.items()))
            for hosts in (step.leave, step.join)
        )
        yield (
            f'With {step.moves} move(s): {cost}, '
            f'{step.gain_over(answer.moves[0]):.0%} less; members leave '
            f'{leave} and join {join}.'
        )
    if len(answer.moves) == 1:
        yield 'No move of its members makes the cluster better.'
