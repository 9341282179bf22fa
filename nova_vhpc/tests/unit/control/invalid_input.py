# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Views with impossible values, and valid views spoiled with one."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from nova_vhpc.control import model

NUMBERS = st.one_of(
    st.none(),
    st.floats(),
    st.integers(-(10**18), 10**18).map(float),
)
PER_VCPU = st.one_of(st.none(), st.lists(st.floats(), max_size=3).map(tuple))
MICROSECONDS = st.one_of(st.none(), st.integers(-5, 2_000_000))
SAMPLE: Mapping[str, st.SearchStrategy[Any]] = {
    'sync_latency_us': NUMBERS,
    'io_events': NUMBERS,
    'vcpu_run_us': PER_VCPU,
    'vcpu_wait_us': PER_VCPU,
    'vcpu_runs': st.one_of(
        st.none(),
        st.lists(st.integers(-(10**18), 10**18), max_size=3).map(tuple),
    ),
    'elapsed_us': NUMBERS,
}
SAMPLES = st.builds(model.Sample, **SAMPLE)
TUNES = st.builds(
    model.CpuTune,
    period_us=MICROSECONDS,
    quota_us=MICROSECONDS,
    shares=st.one_of(st.none(), st.integers(-5, 300_000)),
    vcpu_pins=st.one_of(
        st.none(),
        st.lists(
            st.frozensets(st.integers(-1, 6), max_size=3), max_size=3
        ).map(tuple),
    ),
)
VM: Mapping[str, st.SearchStrategy[Any]] = {
    'uuid': st.sampled_from(['a', 'b', 'c', 'd']),
    'vcpus': st.integers(1, 9),
    'workload': st.sampled_from(model.Workload),
    'paradigm': st.sampled_from(model.Paradigm),
    'io_pool': st.sampled_from(model.IoPoolUse),
    'time_slice_us': st.one_of(st.none(), st.integers(1, 2_000_000)),
    'cluster': st.sampled_from([None, '', 'x', 'y']),
    'repin': st.booleans(),
    'allowed_cpus': st.one_of(
        st.none(), st.frozensets(st.integers(-1, 6), max_size=4)
    ),
    'original': TUNES,
    'in_force': TUNES,
    'sample': SAMPLES,
}
OTHERS = st.builds(
    model.OtherVm,
    # Two are never managed; a may be in a view as both.
    uuid=st.sampled_from(['o', 'p', 'a']),
    vcpus=st.integers(1, 9),
    shares=st.one_of(st.none(), st.integers(-5, 300_000)),
    sample=SAMPLES,
)
HOST: Mapping[str, st.SearchStrategy[Any]] = {
    'tick': st.integers(-5, 10**9),
    'now_us': st.integers(-(10**15), 10**15),
    'period_us': st.integers(1, 10**7),
    'wall_us': st.integers(-(10**15), 10**15),
    'cpus': st.lists(
        st.builds(
            model.Cpu,
            id=st.integers(0, 6),
            socket=st.integers(0, 2),
            llc=st.integers(0, 2),
            core=st.integers(0, 2),
        ),
        max_size=6,
        unique_by=lambda cpu: cpu.id,
    ).map(lambda cpus: tuple(sorted(cpus, key=lambda cpu: cpu.id))),
    'vms': st.lists(
        st.builds(model.VmView, **VM),
        max_size=5,
        unique_by=lambda vm: vm.uuid,
    ).map(tuple),
    'limits': st.builds(
        model.ActuatorLimits,
        effective_min_slice_us=st.sampled_from([0, 1_000, 4_000, 10**9]),
        min_period_us=st.sampled_from([-5, 0, 1_000, 20_000, 10**9]),
        max_period_us=st.sampled_from([0, 20_000, 1_000_000, 10**9]),
        min_quota_us=st.sampled_from([-5, 0, 1_000, 20_000]),
        max_quota_us=st.sampled_from([0, 20_000, 17_592_186_044_415, 10**18]),
        min_shares=st.sampled_from([-5, 2, 50_000]),
        max_shares=st.sampled_from([0, 10_000, 10**9]),
        can_idle=st.booleans(),
    ),
    'peers': st.dictionaries(
        st.sampled_from(['x', 'y', 'z']),
        st.builds(
            model.PeerView,
            io=st.booleans(),
            min_slice_us=st.one_of(st.none(), st.integers(-5, 50_000)),
        ),
        max_size=2,
    ),
    'others': st.lists(OTHERS, max_size=3, unique_by=lambda vm: vm.uuid).map(
        tuple
    ),
    'window_late_us': st.floats(0, 1e9),
}
VIEWS = st.builds(model.HostView, **HOST)


@dataclasses.dataclass(frozen=True)
class Spoiled:
    """Another value for one field of a view.

    :ivar vm: index of the VM whose field it is; None for a field of the view.
    :ivar in_sample: whether it is a field of that VM's sample.
    """

    field: str
    value: Any
    vm: int | None = None
    in_sample: bool = False

    def spoil(self, view: model.HostView) -> model.HostView:
        """Return the view with that value."""
        change = {self.field: self.value}
        if self.vm is None:
            return dataclasses.replace(view, **change)
        vms = list(view.vms)
        number = self.vm % len(vms)
        if self.in_sample:
            change = {
                'sample': dataclasses.replace(vms[number].sample, **change)
            }
        vms[number] = dataclasses.replace(vms[number], **change)
        return dataclasses.replace(view, vms=tuple(vms))


@dataclasses.dataclass(frozen=True)
class Replaced:
    """Another view as a whole."""

    view: model.HostView

    def spoil(self, view: model.HostView) -> model.HostView:
        """Return the other view."""
        return self.view


def _spoiled(
    fields: Mapping[str, st.SearchStrategy[Any]], **where: Any
) -> st.SearchStrategy[Spoiled]:
    return st.one_of(
        [
            st.builds(Spoiled, field=st.just(name), value=values, **where)
            for name, values in fields.items()
            if name != 'uuid'
        ]
    )


Change = Spoiled | Replaced
CHANGES: st.SearchStrategy[Change] = st.one_of(
    VIEWS.map(Replaced),
    _spoiled(HOST),
    _spoiled(VM, vm=st.integers(0, 3)),
    _spoiled(SAMPLE, vm=st.integers(0, 3), in_sample=st.just(True)),
)
"""Changes of a valid view for one tick."""
