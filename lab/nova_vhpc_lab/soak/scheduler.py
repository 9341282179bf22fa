# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Many requests at a time for the filter, the weigher and the planner.

Meanwhile Placement answers late, with errors, with nonsense or with half of
what it has, flavors are malformed, and the wall clock jumps. Which answer
Placement gives depends on the seed and the number of the read; which read a
request sees depends on the machine.
"""

import collections
import contextlib
import gc
import random
import statistics
import threading
import time
import traceback
import tracemalloc
import types
from collections.abc import Iterator
from typing import Any
from unittest import mock

from nova_vhpc_lab.soak import bad_placement, damage, part

HOSTS = 8
THREADS = 4

WARM_UP = 2000
"""Requests after which memory may not grow further."""

MAX_GROWTH = 4 << 20
"""Growth of memory after the warm-up that counts as a fault, in bytes."""

UNRELATED_CPU_S = 0.05
"""CPU time that a request without a virtual cluster may take, in seconds.

The median of all such requests is held to it. Some are slow: garbage is
collected meanwhile, or a busy machine takes CPU time that is counted."""

_PUBLISHED_MINUTES = 29000000
"""Time of the last publications, as :mod:`.bench.scheduler.world` has it."""

_JUMPS_S = (0, 0, 0, 1, -1, 3600, -3600, 86400 * 365, -86400 * 365 * 60)

_MALFORMED: tuple[dict[str, str], ...] = (
    {'vhpc:network': 'nope'},
    {'vhpc:max_overcommit': '0'},
    {'vhpc:spare_cpus': '-1'},
    {'vhpc:nope': 'x'},
    {'vhpc:cluster': '\x1b[2J\n' * 50},
    {'vhpc:workload': ''},
    {'vhpc:min_link_mbps': '9' * 12},
    {'vhpc:uplink_nic': '255'},
    {
        'vhpc:network': 'shared-separate',
        'resources1:CUSTOM_VHPC_UPLINK': '99999999999',
    },
    {
        'vhpc:network': 'shared',
        'vhpc:spare_cpus': '31',
        'vhpc:max_overcommit': '0.000001',
    },
    {'vhpc:network': 'exported'},
    {'vhpc:paradigm': 'openmp', 'vhpc:network': 'separate'},
)


class WallClock:
    """The wall clock as the scheduler sees it; it may jump.

    :ivar offset_s: seconds since the last publications.
    """

    def __init__(self) -> None:
        self.offset_s = 0

    def time(self) -> float:
        """Return the seconds since the epoch."""
        return max(0, _PUBLISHED_MINUTES * 60 + self.offset_s)


class Requests:
    """Requests of several threads, taken from one row of numbers.

    :param seed: seed of the requests.
    :param first: number of the first request.
    :param budget: when to end.
    :param clock: the clock that requests make jump.
    :ivar taken: number of requests that were begun.
    :ivar counts: members placed, and requests of each kind.
    :ivar faults: how to repeat each different fault, by its place.
    :ivar unrelated_s: CPU time of each request without a virtual cluster.
    """

    def __init__(
        self, seed: int, first: int, budget: part.Budget, clock: WallClock
    ) -> None:
        from nova_vhpc.scheduler import filters, weights

        self._seed = seed
        self._first = first
        self._budget = budget
        self._clock = clock
        self._lock = threading.Lock()
        self._filter = filters.VirtualClusterFilter()
        self._weigher = weights.VirtualClusterWeigher()
        self.taken = 0
        self.counts: collections.Counter[str] = collections.Counter()
        self.faults: dict[str, str] = {}
        self.unrelated_s: list[float] = []

    def work(self) -> None:
        """Send requests until the budget is used up."""
        from nova_vhpc_lab.bench.scheduler import world

        cloud = world.World(HOSTS)
        while (number := self._next()) is not None:
            try:
                self.send(cloud, number)
            except Exception as error:
                self._note(number, error)

    def _next(self) -> int | None:
        with self._lock:
            if not self._budget.lasts(self.taken):
                return None
            self.taken += 1
            return self._first + self.taken - 1

    def _note(self, number: int, error: Exception) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        place = ' '.join(
            f'{frame.filename}:{frame.lineno}' for frame in frames
        )
        text = ''.join(traceback.format_exception(error))
        with self._lock:
            self.counts['failed'] += 1
            self.faults.setdefault(
                place,
                text + Scheduler().repeat(self._seed, number),
            )

    def send(self, cloud: Any, number: int) -> None:
        """Send one request, and check what comes of it."""
        from nova_vhpc_lab.bench.scheduler import run, world

        rng = random.Random(f'{self._seed} scheduler {number}')
        self._clock.offset_s = rng.choice(_JUMPS_S)
        kind = rng.choice(('good', 'good', 'malformed', 'unrelated'))
        specs = world.VHPC_SPECS
        if kind == 'unrelated':
            specs = world.PLAIN_SPECS
        elif kind == 'malformed':
            specs = rng.choice(_MALFORMED)
            if rng.random() < 0.5:
                key = rng.choice(sorted(world.VHPC_SPECS))
                value = damage.characters(rng, world.VHPC_SPECS[key])
                specs = {**world.VHPC_SPECS, key: value}
        spec = world.request(
            rng.choice((1, 1, 2, 4)), rng.choice(run.POLICIES), specs
        )
        spec.flavor.name = spec.flavor.flavorid = f'flavor{number % 1000}'
        states = cloud.reset()
        if kind == 'unrelated':
            self._pass_by(states, spec)
        else:
            placed = self.place(states, spec, kind == 'good')
            with self._lock:
                self.counts['placed'] += placed
        with self._lock:
            self.counts[kind] += 1

    def _pass_by(self, states: list[Any], spec: Any) -> None:
        """Check that a request without a virtual cluster is untouched."""
        from nova.scheduler import weights

        began_s = time.thread_time()
        kept = self._filter.filter_all(states, spec)
        weighed = [weights.WeighedHost(state, 0.0) for state in states]
        raw = self._weigher.weigh_objects(weighed, spec)
        factors = [self._weigher.weight_multiplier(state) for state in states]
        took_s = time.thread_time() - began_s
        if kept is not states or any(raw) or any(factors):
            raise AssertionError(f'not untouched: {kept}, {raw}, {factors}')
        with self._lock:
            self.unrelated_s.append(took_s)

    def place(self, states: list[Any], spec: Any, alone: bool) -> int:
        """Place the members of a cluster, as Nova's scheduler manager does.

        :param alone: whether each member is to have an uplink for itself.
        :returns: number of members that found a host.
        """
        from nova.scheduler import weights

        uplinks: list[str] = []
        members = list(spec.instance_group.members)
        for placed, uuid in enumerate(members):
            spec.instance_uuid = uuid
            states = list(self._filter.filter_all(states, spec))
            if not states:
                return placed
            weighed = [weights.WeighedHost(state, 0.0) for state in states]
            raw = self._weigher.weigh_objects(weighed, spec)
            best = states[max(range(len(states)), key=raw.__getitem__)]
            if best.allocation_candidates:
                mappings = best.allocation_candidates[0]['mappings']
                uplinks += mappings.get('_uplink', [])
            best.consume_from_request(spec)
            spec.instance_group.hosts.append(best.host)
            best.instances[uuid] = None
        if alone and len(uplinks) != len(set(uplinks)):
            raise AssertionError(f'an uplink was chosen twice: {uplinks}')
        return len(members)


class Scheduler(part.Part):
    """Sends requests from several threads at a time."""

    name = 'scheduler'
    counted = 'requests'

    def run(self, seed: int, first: int, budget: part.Budget) -> bool:
        """Print what is found and how to repeat it; True if nothing is."""
        from nova_vhpc_lab.bench.scheduler import world

        placement = bad_placement.Placement(
            seed,
            world.bulk_body(HOSTS),
            {'resource_providers': world.names(HOSTS)},
        )
        clock = WallClock()
        with _environment(placement, clock) as cache:
            requests = Requests(seed, first, budget, clock)
            memory = _send(requests)
            faults = list(requests.faults.values())
            faults += _recovers(placement, clock, cache, requests)
        took_s = statistics.median(requests.unrelated_s or (0.0,))
        if took_s > UNRELATED_CPU_S:
            faults.append(
                f'scheduler: {took_s:.3f} s of CPU time per unrelated request'
            )
        if len(memory) > 1 and memory[-1] - memory[0] > MAX_GROWTH:
            faults.append(f'scheduler: memory has grown: {memory} bytes')
        for fault in faults:
            print(fault, flush=True)
        counts = requests.counts
        print(
            f'{self.name}: {requests.taken} requests, '
            f'{counts["malformed"]} malformed, {counts["unrelated"]} '
            f'unrelated, {counts["placed"]} members placed, '
            f'{placement.answers.total()} answers of Placement, '
            f'{placement.answers["good"]} good; {counts["failed"]} failed, '
            f'{len(faults)} different faults; memory {memory[0] >> 10} KiB '
            f'at first, {memory[-1] >> 10} KiB at last',
            flush=True,
        )
        return not faults


def _no_locations(uuids: Any) -> None:
    """Do what ``locate`` does if Nova's databases do not answer."""


def _no_racks(hosts: Any, key: str) -> dict[str, str]:
    """Do what ``racks`` does if Nova's database does not answer."""
    return {}


@contextlib.contextmanager
def _environment(
    placement: bad_placement.Placement, clock: WallClock
) -> Iterator[Any]:
    """Configure Nova's scheduler to use this Placement and this clock."""
    import nova.conf
    from nova import objects

    from nova_vhpc.conf import scheduler as scheduler_conf
    from nova_vhpc.scheduler.session import host_fit
    from nova_vhpc.scheduler.sources import (
        nova_db,
        server_groups,
        uplink_cache,
    )

    objects.register_all()
    conf = nova.conf.CONF
    conf([], default_config_files=[], project='nova')
    scheduler_conf.register_opts(conf)
    options = {'snapshot_ttl': 1, 'refresh_timeout': 2}
    for name, value in options.items():
        conf.set_override(name, value, 'vhpc_scheduler')
    cache = uplink_cache.UplinkCache(conf, placement.get)
    uplink_cache.reset()
    uplink_cache.install(cache)
    server_groups.install(server_groups.ServerGroups(lambda uuids: {}))
    # Plain functions: a mock would remember every call.
    no_locations = mock.patch.object(nova_db, 'locate', _no_locations)
    no_racks = mock.patch.object(nova_db, 'racks', _no_racks)
    jumping = mock.patch.object(
        host_fit, 'time', types.SimpleNamespace(time=clock.time)
    )
    try:
        with part.unlogged(), no_locations, no_racks, jumping:
            yield cache
    finally:
        placement.healthy.set()
        uplink_cache.reset()
        server_groups.reset()
        for name in options:
            conf.clear_override(name, 'vhpc_scheduler')


def _send(requests: Requests) -> list[int]:
    """Send all requests; return used memory at times, in bytes."""
    threads = [
        threading.Thread(target=requests.work, daemon=True)
        for _ in range(THREADS)
    ]
    memory = []
    tracemalloc.start()
    try:
        for thread in threads:
            thread.start()
        due = WARM_UP
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)
                if requests.taken >= due:
                    memory.append(_memory())
                    due += WARM_UP
        memory.append(_memory())
    finally:
        tracemalloc.stop()
    return memory


def _memory() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def _recovers(
    placement: bad_placement.Placement,
    clock: WallClock,
    cache: Any,
    requests: Requests,
) -> list[str]:
    """Check that a healthy Placement and a right clock place clusters again.

    :returns: what is wrong.
    """
    from nova_vhpc_lab.bench.scheduler import run, world

    placement.healthy.set()
    clock.offset_s = 0
    asked_s = time.monotonic()
    cache.expire()
    while (last := cache.latest()) is None or last.taken_s < asked_s:
        if time.monotonic() - asked_s > 60:
            return ['scheduler: no snapshot 60 s after the faults ended']
        time.sleep(0.1)
    for policy in run.POLICIES:
        spec = world.request(4, policy, world.VHPC_SPECS)
        placed = requests.place(world.World(HOSTS).reset(), spec, True)
        if placed != 4:
            return [f'scheduler: {placed} of 4 placed after the faults']
    return []
