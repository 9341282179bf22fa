# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Build controllers, VMs and views of a host; apply plans to them."""

import dataclasses

from nova_vhpc.control import config as control_config
from nova_vhpc.control import controller, model
from nova_vhpc.control.gang import policy
from nova_vhpc.control.pinning import balance, io_pool
from nova_vhpc.control.pinning import base as pinning_base
from nova_vhpc.control.slices import atc
from nova_vhpc.control.slices import base as slices_base
from nova_vhpc.tests.unit.control import plan_checks
from nova_vhpc_lab.rivals import dss, fixed, vslicer

SLICES = (
    atc.AtcPolicy,
    dss.DssPolicy,
    fixed.FixedPolicy,
    vslicer.VslicerPolicy,
    policy.GangPolicy,
    slices_base.NonePolicy,
)
PINNINGS = (
    io_pool.IoPoolPolicy,
    balance.BalancePolicy,
    pinning_base.NonePolicy,
)
CPUS = tuple(model.Cpu(n, n // 2, n // 2, n) for n in range(4))
ALL = frozenset(range(4))
ORIGINAL = model.CpuTune(100_000, -1, 1_024, (ALL, ALL))


class LastValue:
    """Predicts the last number of events."""

    state_bytes = 0

    def __init__(self):
        self.state = 0

    def observe(self, state, events):
        self.state = state

    def predict(self):
        return self.state


def make(slices=atc.AtcPolicy, pinning=io_pool.IoPoolPolicy, **kwargs):
    """Return a controller with these policies and configuration."""
    config = control_config.ControlConfig(**kwargs)
    return controller.Controller(
        config, slices(config), pinning(config), LastValue
    )


def vm(uuid='a', **kwargs):
    """Return a parallel VM of two vCPUs, with fields changed."""
    kwargs.setdefault('workload', model.Workload.PARALLEL)
    kwargs.setdefault('original', ORIGINAL)
    kwargs.setdefault('in_force', kwargs['original'])
    kwargs.setdefault('vcpus', 2)
    return model.VmView(uuid, **kwargs)


def view(*vms, tick=1, cpus=CPUS, **kwargs):
    """Return a view of a host of four CPUs with these VMs."""
    return model.HostView(tick, tick * 100_000, 100_000, cpus, vms, **kwargs)


def apply(one, plan):
    """Return a VM as it is after its plan was written."""
    writes = plan.vms[one.uuid].writes
    if writes is None:
        return one
    return dataclasses.replace(
        one, in_force=plan_checks.after(one.in_force, writes)
    )
