# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""What the planner is measured against: the optimum, and greed.

``python -m nova_vhpc.tests.unit.scheduler.planner.oracle [CASES]`` prints the
figures of ``doc/source/admin/cost-model.rst``.
"""

import dataclasses
import random
import statistics
import sys
import time

from nova_vhpc.flavor import extra_specs
from nova_vhpc.scheduler import planner
from nova_vhpc.scheduler.planner import cost
from nova_vhpc.scheduler.planner.host_groups import (
    cap_members,
    capacities,
    limit_of,
)
from nova_vhpc.scheduler.planner.model import (
    NO_LIMIT,
    HostFacts,
    PlanRequest,
    Policy,
    Tier,
)
from nova_vhpc.scheduler.planner.objective import Objective


def host(number, cpus=16, used=0, **facts):
    values = {
        'name': f'host{number}',
        'total_cpus': cpus,
        'used_vcpus': used,
        'free_cpus': cpus - used,
        'free_ram_mb': 65536,
        **facts,
    }
    return HostFacts(**values)


def hosts(number, **facts):
    return [host(n, **facts) for n in range(number)]


def fabric(switches, per_switch, per_rack=2, **facts):
    """Hosts named host0.. on switches s0.. in racks r0.."""
    return [
        host(
            n,
            switch=f's{n // per_switch}',
            rack=f'r{n // per_switch // per_rack}',
            **facts,
        )
        for n in range(switches * per_switch)
    ]


def plan(members, facts, **request):
    values = {'vcpus': 1, 'ram_mb': 1024, 'network': 'shared', **request}
    return planner.plan(PlanRequest(members=members, hosts=facts, **values))


def member_us(network, here, members, load, *, tier_factor=1.0, **rest):
    """Return the mean time of a nominal message of a member, in us."""
    local, remote = cost.split_us(network, here, members, load, **rest)
    return local + remote * tier_factor


def allowed(objective, counts):
    """Return whether tier and affinity hold; capacities cover the rest."""
    limit = objective.request.max_tier
    if limit is not None and objective.tier(objective.merged(counts)) > limit:
        return False
    if objective.request.policy != Policy.AFFINITY:
        return True
    if objective.existing:
        return all(index in objective.existing for index in counts)
    return len(counts) <= 1


def capacity_of(objective):
    request = objective.request
    return cap_members(
        objective, capacities(request, objective), limit_of(request)
    )


def exhaustive(request):
    """Return the least value of all placements, None if there is none."""
    objective = Objective(request)
    capacity = capacity_of(objective)
    hosts = [index for index, free in enumerate(capacity) if free]
    best = None

    def walk(position, left, counts):
        nonlocal best
        if left == 0:
            if allowed(objective, counts):
                value = objective.value(counts)
                if best is None or value < best:
                    best = value
            return
        if position == len(hosts):
            return
        index = hosts[position]
        for new in range(min(capacity[index], left), -1, -1):
            more = {**counts, index: new} if new else counts
            walk(position + 1, left - new, more)

    walk(0, request.members, {})
    return best


def greedy(request):
    """Return the value of placing members one by one on the cheapest host.

    This is what a weigher with the cost model but without a plan does.
    None if a member does not fit in the end.
    """
    whole = Objective(request)
    capacity = capacity_of(whole)
    counts = {}
    for members in range(1, request.members + 1):
        so_far = Objective(dataclasses.replace(request, members=members))
        best = None
        for index, free in enumerate(capacity):
            if counts.get(index, 0) >= free:
                continue
            more = {**counts, index: counts.get(index, 0) + 1}
            if allowed(so_far, more):
                value = so_far.value(more)
                if best is None or value < best[0]:
                    best = (value, more)
        if best is None:
            return None
        counts = best[1]
    return whole.value(counts)


def plain_value(objective, counts):
    """Compute a placement's value anew, member by member."""
    hosts = objective.hosts
    merged = objective.merged(counts)
    members = sum(merged.values())

    def within(part, index):
        """Return the members on a host, in its switch or in its rack."""
        name = getattr(hosts[index], part)
        if name is None:
            return merged[index]
        return sum(
            here
            for i, here in merged.items()
            if getattr(hosts[i], part) == name
        )

    each_us = []
    for index, here in merged.items():
        host = hosts[index]
        near = within('switch', index)
        middle = max(near, within('rack', index))
        switch, rack, far = (
            cost.TIER_FACTOR[tier]
            for tier in (Tier.SWITCH, Tier.RACK, Tier.ALL)
        )
        away = (
            switch * (near - here)
            + rack * (middle - near)
            + far * (members - middle)
        )
        busy = host.used_vcpus + counts.get(index, 0) * (
            objective.request.vcpus
        )
        own = min(busy, here * objective.request.vcpus)
        cpus = max(1, host.total_cpus)
        each_us += here * [
            member_us(
                objective.request.network,
                here,
                members,
                cost.load_of(busy, host.total_cpus),
                link_mbps=host.link_mbps,
                tier_factor=away / max(1, members - here),
                own=own / cpus,
                strangers=(busy - own) / cpus,
                paradigm=objective.request.paradigm,
            )
        ]
    share = cost.SLOWEST_SHARE
    cost_us = (1 - share) * statistics.mean(each_us) + share * max(each_us)
    policy = objective.request.policy
    if policy == Policy.SOFT_AFFINITY:
        return len(merged), cost_us
    if policy == Policy.SOFT_ANTI_AFFINITY:
        return sum(n * (n - 1) // 2 for n in merged.values()), cost_us
    return 0, cost_us


def value_of(request, placement):
    """Return the value of the planner's placement."""
    objective = Objective(request)
    position = {host.name: i for i, host in enumerate(objective.hosts)}
    return objective.value(
        {position[name]: new for name, new in placement.assignments.items()}
    )


def random_request(choose, hosts=6, members=7):
    """Return a small request; ``choose`` is like random.Random."""
    facts = []
    for number in range(choose.randint(2, hosts)):
        cpus = choose.choice([4, 8, 16, 32])
        used = choose.choice([0, 0, choose.randint(0, cpus)])
        facts.append(
            HostFacts(
                f'host{number}',
                cpus,
                used,
                cpus - used,
                choose.choice([4096, 16384, 65536]),
                choose.choice([1, 2, 4, NO_LIMIT]),
                choose.choice([1000, 10000, 25000]),
                choose.choice(['s0', 's1', 's2', None]),
                choose.choice(['r0', 'r1', None]),
            )
        )
    existing = {}
    if choose.randint(0, 2) == 0:
        for _ in range(choose.randint(1, 2)):
            existing[choose.choice(facts).name] = choose.randint(1, 2)
    return PlanRequest(
        members=choose.randint(1, members),
        vcpus=choose.choice([1, 2, 4]),
        ram_mb=choose.choice([1024, 4096]),
        hosts=facts,
        network=choose.choice([None, *extra_specs.NETWORKS]),
        paradigm=choose.choice(list(extra_specs.PARADIGMS)),
        policy=choose.choice([None, None, None, *Policy]),
        max_server_per_host=choose.choice([None, 2]),
        spare_cpus=choose.choice([0, 1]),
        max_overcommit=choose.choice([1.0, 1.0, 1.5]),
        existing=existing,
    )


@dataclasses.dataclass
class Tally:
    """Costs over the optimum, of cases that have a solution."""

    ours: list[float] = dataclasses.field(default_factory=list)
    greedy: list[float] = dataclasses.field(default_factory=list)
    greedy_lost: int = 0
    soft_lost: int = 0
    infeasible: int = 0

    def add(self, request):
        """Plan one case.

        :raises AssertionError: the planner missed a solution.
        """
        best = exhaustive(request)
        placement = planner.plan(request)
        if best is None:
            assert placement.infeasible_reason, request
            self.infeasible += 1
            return
        assert placement.infeasible_reason is None, (
            f'{placement.infeasible_reason}, but there is one: {request}'
        )
        assert sum(placement.assignments.values()) == request.members
        value = value_of(request, placement)
        if value[0] == best[0]:
            self.ours.append(over(value, best))
        else:
            assert value[0] > best[0], f'too good to be true: {request}'
            self.soft_lost += 1
        other = greedy(request)
        if other is None:
            self.greedy_lost += 1
        elif other[0] == best[0]:
            self.greedy.append(over(other, best))

    def report(self):
        """Return the figures as lines of text."""
        cases = len(self.ours) + self.soft_lost
        return [
            f'{cases} cases with a solution, {self.infeasible} without',
            f'planner: mean {statistics.mean(self.ours):.4f} of the '
            f'optimum, worst {max(self.ours):.2f}, '
            f'{sum(o > 1.001 for o in self.ours)} above it, '
            f'{self.soft_lost} with more hosts or pairs than needed',
            f'greedy: mean {statistics.mean(self.greedy):.4f}, worst '
            f'{max(self.greedy):.2f}, '
            f'{sum(o > 1.001 for o in self.greedy)} above it, '
            f'{cases - self.greedy_lost - len(self.greedy)} with more hosts '
            f'or pairs than needed, {self.greedy_lost} not placed at all',
        ]


def over(value, best):
    return value[1] / best[1] if best[1] else 1.0


def cloud(hosts, seed=1, per_switch=32):
    """Return half-full hosts of 64 CPUs, 4 switches to a rack."""
    choose = random.Random(seed)
    facts = []
    for number in range(hosts):
        used = choose.choice([0, 0, 0, 8, 16, 24, 32, 60])
        facts.append(
            HostFacts(
                f'host{number}',
                64,
                used,
                64 - used,
                256000 - 2000 * used,
                16,
                10000,
                f'switch{number // per_switch}',
                f'rack{number // per_switch // 4}',
            )
        )
    return facts


def main(argv):
    tally = Tally()
    choose = random.Random(1)
    for _ in range(int(argv[0]) if argv else 2000):
        tally.add(random_request(choose))
    print('\n'.join(tally.report()))
    for hosts, per_switch, running in (
        (1000, 32, 0),
        (10000, 32, 0),
        (10000, 2, 0),
        (10000, 1, 0),
        (10000, 32, 500),
    ):
        facts = cloud(hosts, per_switch=per_switch)
        existing = {f'host{n * hosts // 500}': 1 for n in range(running)}
        print(f'{hosts} hosts, {per_switch} to a switch, {running} running:')
        for network in extra_specs.NETWORKS:
            request = PlanRequest(
                64, 4, 4096, facts, network, spare_cpus=2, existing=existing
            )
            times = []
            for _ in range(5):
                began = time.process_time()
                placement = planner.plan(request)
                times.append(time.process_time() - began)
            print(
                f'  64 members, {network}: {1000 * min(times):.1f} ms, '
                f'{len(placement.assignments)} hosts, '
                f'tier {placement.tier.name.lower()}, '
                f'{placement.cost:.0f} us per message'
            )


if __name__ == '__main__':
    main(sys.argv[1:])
