# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Simulated hosts of the ATC paper's experiments, and its policies.

One host of eight CPUs stands for a node of the paper's cluster. Sizes and
numbers of VMs are the paper's; its programs (NPB) are replaced by rounds of
computing and spinning, and what a switch of VMs costs them in cache misses by
a constant.
"""

import dataclasses
from collections.abc import Callable

from nova_vhpc.control import config as control_config
from nova_vhpc.control import controller, model
from nova_vhpc.control.pinning import base as pinning_base
from nova_vhpc.control.predictors import last_value
from nova_vhpc.control.slices import atc, base
from nova_vhpc_lab.rivals import dss, fixed, vslicer
from nova_vhpc_lab.sim import coscheduler, measurement, programs
from nova_vhpc_lab.sim.host_spec import HostSpec, LoadSpec, VmSpec
from nova_vhpc_lab.sim.kernels import CoScheduling, XenCredit

CPUS = 8

SWITCH_US = 20.0
"""Time that a vCPU loses at each switch; chosen so that the best slice is
about the paper's, 0.3 ms."""

DOM0 = LoadSpec(programs.Sleep(100, 10_000, spread=2.0), CPUS)
"""Short work for the VMs' I/O. Without it, slices of equal VMs that begin
together end together for ever."""

SLICES_US = (30_000, 24_000, 18_000, 12_000, 6_000, 1_000, 600, 300, 150, 100)
"""ATC paper, section II.B and figure 5."""

WORK_US = (500, 2_000, 5_000)
"""How long a vCPU computes between two barriers."""

SHORT_SLICE_US = 6_000
"""ATC paper, section IV.C: slice of VMs that are not parallel, "ATC(6ms)"."""


def equal_slices(slice_us: int, work_us: int) -> HostSpec:
    """Return four parallel VMs of 16 vCPUs under one slice (section II.B)."""
    return HostSpec(
        f'{slice_us} us',
        CPUS,
        tuple(_parallel(number, 16, work_us) for number in range(4)),
        (DOM0,),
        kernel=XenCredit(slice_us, ratelimit_us=0),
        switch_us=SWITCH_US,
    )


def parallel_only(work_us: int) -> HostSpec:
    """Return four parallel VMs of 8 vCPUs (section IV.B)."""
    return HostSpec(
        'parallel',
        CPUS,
        tuple(_parallel(number, 8, work_us) for number in range(4)),
        (DOM0,),
        kernel=XenCredit(),
        switch_us=SWITCH_US,
    )


def mixed(work_us: int, other_slice_us: int | None = None) -> HostSpec:
    """Return two parallel VMs, a web server and a busy VM (section IV.C).

    :param other_slice_us: slice that the administrator specified for the
        latter two.
    """
    web = VmSpec(
        'web',
        'serves',
        programs.Serve(interval_us=16_000),
        8,
        opted_in=True,
        workload=model.Workload.LATENCY,
        time_slice_us=other_slice_us,
    )
    busy = dataclasses.replace(
        web,
        name='busy',
        kind='busy',
        program=programs.Run(),
        workload=model.Workload.GENERAL,
    )
    return dataclasses.replace(
        parallel_only(work_us),
        name='mixed',
        vms=(
            *(_parallel(number, 8, work_us) for number in range(2)),
            web,
            busy,
        ),
    )


def _parallel(number: int, vcpus: int, work_us: int) -> VmSpec:
    return VmSpec(
        f'parallel{number}',
        'spins',
        programs.Spin(work_us),
        vcpus,
        opted_in=True,
    )


def _make(
    policy: Callable[[control_config.ControlConfig], base.SlicePolicy],
) -> measurement.MakeController:
    def make() -> controller.Controller:
        # The paper's algorithm has no guard.
        config = control_config.ControlConfig(guard=False)
        return controller.Controller(
            config,
            policy(config),
            pinning_base.NonePolicy(config),
            last_value.LastValuePredictor,
        )

    return make


@dataclasses.dataclass(frozen=True, slots=True)
class Policy:
    """One of the approaches that are compared.

    :ivar make_controller: None for the scheduler as it is.
    :ivar other_slice_us: specified slice of VMs that are not parallel.
    """

    make_controller: measurement.MakeController | None = None
    coscheduling: coscheduler.Settings | None = None
    other_slice_us: int | None = None

    def measure(
        self, spec: HostSpec, seed: int, warm_up_s: float, seconds: float
    ) -> measurement.Record:
        """Run a host with this policy."""
        return measurement.measure(
            spec,
            seed,
            self.make_controller,
            warm_up_s,
            seconds,
            self.coscheduling,
        )


POLICIES = {
    'credit': Policy(),
    'cs': Policy(coscheduling=coscheduler.Settings()),
    'cs-strict': Policy(
        coscheduling=coscheduler.Settings(CoScheduling.STRICT)
    ),
    'fixed': Policy(_make(fixed.FixedPolicy)),
    'dss': Policy(_make(dss.DssPolicy)),
    'vslicer': Policy(_make(vslicer.VslicerPolicy)),
    'atc': Policy(_make(atc.AtcPolicy)),
    'atc-6ms': Policy(_make(atc.AtcPolicy), other_slice_us=SHORT_SLICE_US),
}
"""Section IV.A, by name; ``fixed`` is 10 ms for all VMs."""
