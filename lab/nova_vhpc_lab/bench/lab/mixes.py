# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""The mixes of guests that the lab measures, on two host CPUs.

On a larger host the lab uses the first two CPUs that it is allowed to use.
"""

import dataclasses
from collections.abc import Mapping

from nova_vhpc_lab.testbed import errors, parallel_programs
from nova_vhpc_lab.testbed.guest import PERIOD_US, GuestSpec

PARALLEL: Mapping[str, str] = {'vhpc:workload': 'parallel'}
LATENCY: Mapping[str, str] = {'vhpc:workload': 'latency'}


@dataclasses.dataclass(frozen=True, slots=True)
class Mix:
    """Guests that run side by side.

    :ivar name: name on the command line and in the JSON.
    :ivar about: what the guests are, for people.
    :ivar overcommitted: whether there are more busy vCPUs than CPUs; such
        mixes count for the mean of the speedups.
    :ivar host_load: whether a process outside of all guests keeps the second
        CPU busy; it weighs as much as all guests together.
    :ivar cycle_s: length of a cycle of the guests' phases, in seconds.
        Measurements shorter than that would compare different phases.
    """

    name: str
    about: str
    guests: tuple[GuestSpec, ...]
    overcommitted: bool = True
    host_load: bool = False
    cycle_s: float = 0.0

    @property
    def clusters(self) -> dict[str, tuple[GuestSpec, ...]]:
        """Parallel guests by cluster."""
        clusters: dict[str, tuple[GuestSpec, ...]] = {}
        for guest in self.guests:
            if guest.cluster is not None:
                members = clusters.get(guest.cluster, ())
                clusters[guest.cluster] = (*members, guest)
        return clusters


def _barrier(cluster: str, vcpus: int = 2) -> GuestSpec:
    return GuestSpec(
        name=cluster,
        workload='barrier',
        kind='barrier' if vcpus == 2 else f'barrier{vcpus}',
        vcpus=vcpus,
        cluster=cluster,
        extra_specs={**PARALLEL, 'vhpc:cluster': cluster},
    )


def _hog(name: str, vcpus: int = 2) -> GuestSpec:
    return GuestSpec(
        name=name,
        workload='hog',
        kind='hog' if vcpus == 2 else f'hog{vcpus}',
        vcpus=vcpus,
        parallel=False,
    )


_OTHERS_SHARE = Mix(
    'others-share',
    'two clusters and a CPU hog that did not opt in',
    (_barrier('a'), _barrier('b'), _hog('h')),
)

_HOGS = Mix(
    'hogs',
    'two clusters and two CPU hogs that did not opt in',
    (_barrier('a'), _barrier('b'), _hog('h'), _hog('i')),
)


def _with_quota(*guests: GuestSpec) -> tuple[GuestSpec, ...]:
    """Return the guests with a quota of half a CPU per vCPU."""
    return tuple(
        dataclasses.replace(one, quota_us=PERIOD_US // 2) for one in guests
    )


_WEB = GuestSpec(
    'w',
    'web',
    'web',
    vcpus=1,
    parallel=False,
    network=True,
    arguments={'rank': 9},
)


def _beside_load(mix: Mix) -> Mix:
    """Return a mix with load on the host beside it."""
    return dataclasses.replace(
        mix,
        name=f'{mix.name}-loaded',
        about=f'{mix.about}, beside load on one CPU',
        host_load=True,
    )


def _talkers(
    workload: str, cluster: str, **arguments: str | int
) -> tuple[GuestSpec, ...]:
    """Two guests that send messages to each other."""
    return tuple(
        GuestSpec(
            name=f'{cluster}{rank}',
            workload=workload,
            kind=f'{workload}-{cluster}',
            vcpus=1,
            cluster=cluster,
            extra_specs={**PARALLEL, 'vhpc:cluster': cluster},
            network=True,
            arguments={'rank': rank, 'size': 2, **arguments},
        )
        for rank in range(2)
    )


MIXES: Mapping[str, Mix] = {
    mix.name: mix
    for mix in (
        Mix(
            'alone',
            'one cluster alone',
            (_barrier('a'),),
            overcommitted=False,
        ),
        Mix(
            'clusters',
            'three equal clusters',
            (_barrier('a'), _barrier('b'), _barrier('c')),
        ),
        Mix(
            'six',
            'six equal clusters',
            tuple(_barrier(name) for name in 'abcdef'),
        ),
        _HOGS,
        Mix(
            'web',
            'two clusters and a web server that did not opt in',
            (
                _barrier('a'),
                _barrier('b'),
                _WEB,
            ),
        ),
        Mix(
            'phased',
            'a cluster that communicates in phases, and a computing one',
            (*_talkers('allreduce', 'p', phase_ms=500), _barrier('c')),
            cycle_s=1.0,
        ),
        Mix(
            'network',
            'two clusters that communicate all the time',
            (
                *_talkers('allreduce', 'p'),
                *_talkers('allreduce', 'q', net_offset=10),
            ),
        ),
        Mix(
            'pingpong',
            'a cluster that exchanges small messages, and a computing one',
            (*_talkers('pingpong', 't', net_offset=20), _barrier('c')),
        ),
        Mix(
            'narrow',
            'two clusters and a CPU hog of one vCPU that did not opt in',
            (_barrier('a'), _barrier('b'), _hog('h', 1)),
        ),
        Mix(
            'block',
            'three clusters that spin briefly and then sleep',
            tuple(
                dataclasses.replace(
                    _barrier(name), workload='block', kind='block'
                )
                for name in 'abc'
            ),
        ),
        _OTHERS_SHARE,
        _beside_load(_OTHERS_SHARE),
        _beside_load(_HOGS),
        Mix(
            'sizes',
            'a cluster and CPU hogs of 1, 2 and 4 vCPUs that did not opt in',
            (_barrier('a'), _hog('h', 1), _hog('i'), _hog('j', 4)),
        ),
        Mix(
            'sizes-opted-in',
            'clusters of 1, 2 and 4 vCPUs',
            tuple(
                _barrier(name, vcpus)
                for name, vcpus in (('a', 1), ('b', 2), ('c', 4))
            ),
        ),
        Mix(
            'quota',
            'three equal clusters with quotas',
            _with_quota(_barrier('a'), _barrier('b'), _barrier('c')),
        ),
        Mix(
            'quota-hogs',
            'two clusters with quotas and two CPU hogs that did not opt in',
            (*_with_quota(_barrier('a'), _barrier('b')), _hog('h'), _hog('i')),
        ),
        Mix(
            'quota-latency',
            'two clusters and a web server that opted in, all with quotas',
            _with_quota(
                _barrier('a'),
                _barrier('b'),
                dataclasses.replace(_WEB, extra_specs=LATENCY),
            ),
        ),
    )
}
"""Mixes by name; the first five are measured by default."""

DEFAULT_MIXES = ('alone', 'clusters', 'hogs', 'web', 'phased')

ROUNDS_PER_US = 65
"""Rounds of ``compute()`` per microsecond on an emulated vCPU, about."""


def with_library(mix: Mix, library: str, work_us: float) -> Mix:
    """Return a mix whose clusters run a program of an MPI or OpenMP library.

    :param mix: a mix of :data:`MIXES`.
    :param library: one of :data:`.parallel_programs.LIBRARIES`.
    :param work_us: how long each rank computes between two barriers if it has
        a CPU for itself, in microseconds, about.
    :raises LabError: the mix has no cluster that waits at barriers.
    """
    if all(one.workload != 'barrier' for one in mix.guests):
        raise errors.LabError(
            f'the mix {mix.name} has no cluster that could run {library}'
        )
    guests = []
    for one in mix.guests:
        # All guests boot the same image, which needs the memory.
        guest = dataclasses.replace(
            one, memory_mib=parallel_programs.MEMORY_MIB
        )
        if one.workload == 'barrier':
            guest = dataclasses.replace(
                guest,
                workload=library,
                kind=f'{library}{one.vcpus}',
                arguments={'grain': round(work_us * ROUNDS_PER_US)},
            )
        guests.append(guest)
    return dataclasses.replace(
        mix,
        name=f'{mix.name}-{library}-{work_us:g}us',
        about=f'{mix.about}; {library}, {work_us:g} us between barriers',
        guests=tuple(guests),
    )
