# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Build VMs and hosts, and run a gang policy on them."""

import collections
import dataclasses

from nova_vhpc.control import config as control_config
from nova_vhpc.control import fair_share, model
from nova_vhpc.control.gang import policy as gang
from nova_vhpc.control.slices import base
from nova_vhpc.tests import base as tests_base

TICK_US = 100_000
CONFIG = control_config.ControlConfig()
V1 = model.ActuatorLimits(min_shares=2, max_shares=262_144, can_idle=True)
V2 = model.ActuatorLimits(min_shares=1, max_shares=10_000, can_idle=True)


def host(cpus):
    """Return CPUs of a host with one socket."""
    return tuple(model.Cpu(number) for number in range(cpus))


def busy(vcpus=2, part=1.0):
    """Return a sample of vCPUs that half run and half wait.

    :param part: part of the period in which they run or wait, 0.0 to 1.0.
    """
    half = TICK_US * part / 2
    return model.Sample(
        vcpu_run_us=(half,) * vcpus,
        vcpu_wait_us=(half,) * vcpus,
        vcpu_runs=(10,) * vcpus,
        elapsed_us=TICK_US,
    )


def vm(uuid, **changes):
    """Return a busy parallel VM of two vCPUs, with fields changed."""
    fields = {
        'vcpus': 2,
        'workload': model.Workload.PARALLEL,
        'original': model.CpuTune(100_000, -1, 1024),
        'sample': busy(changes.get('vcpus', 2)),
    }
    return model.VmView(uuid, **{**fields, **changes})


def weighing(shares):
    """Return original settings with these CPU shares."""
    return model.CpuTune(100_000, -1, shares)


def hog(uuid, vcpus=2, shares=1024, part=1.0):
    """Return an unmanaged VM that by default never sleeps."""
    return model.OtherVm(uuid, vcpus, shares, busy(vcpus, part))


def received(one, cpus):
    """Return a VM that received so many CPUs, and waited for the others.

    :param cpus: CPUs, shared evenly by its vCPUs.
    """
    run_us = min(1.0, cpus / one.vcpus) * TICK_US
    sample = model.Sample(
        vcpu_run_us=(run_us,) * one.vcpus,
        vcpu_wait_us=(TICK_US - run_us,) * one.vcpus,
        vcpu_runs=(10,) * one.vcpus,
        elapsed_us=TICK_US,
    )
    return dataclasses.replace(one, sample=sample)


def as_entitled(vms, cpus):
    """Return VMs of which those that never sleep received their fair part."""
    demands = {}
    for one in vms:
        shares = (
            one.original.shares
            if isinstance(one, model.VmView)
            else one.shares
        )
        run_us = one.sample.vcpu_run_us or ()
        demands[one.uuid] = fair_share.Demand(
            shares or model.DEFAULT_SHARES_V1,
            float(one.vcpus) if is_busy(one) else sum(run_us) / TICK_US,
        )
    fair = fair_share.fair_cpus(collections.Counter(demands.values()), cpus)
    return tuple(
        received(one, fair[demands[one.uuid]]) if is_busy(one) else one
        for one in vms
    )


def is_busy(one):
    """Return whether a VM never sleeps, by its sample."""
    return one.sample == busy(one.vcpus)


class GangTestCase(tests_base.TestCase):
    """Gives a policy the same view for seven seconds of ticks.

    Windows are played after some three of them: first the host is watched. A
    VM counts as CPU-bound after two.
    """

    def decide(
        self,
        *vms,
        others=(),
        in_io_pool=(),
        limits=V1,
        cpus=2,
        ticks=70,
        policy=None,
        config=CONFIG,
        late_us=0.0,
        fair=True,
        slots=None,
    ):
        """Return the last decision of ``ticks`` equal control periods.

        :param fair: VMs that never sleep receive what they are entitled to.
        """
        policy = policy or gang.GangPolicy(config)
        if fair:
            every = as_entitled((*vms, *others), cpus)
            vms, others = every[: len(vms)], every[len(vms) :]
        decision = None
        for tick in range(ticks):
            decision = policy.decide(
                base.SliceContext(
                    view=model.HostView(
                        tick,
                        tick * TICK_US,
                        TICK_US,
                        host(cpus),
                        vms,
                        limits=limits,
                        others=others,
                        window_late_us=late_us,
                        slots=slots or {},
                    ),
                    phases={},
                    pins={},
                    in_io_pool=frozenset(in_io_pool),
                )
            )
        return decision

    def part_favoured(self, windows, uuid):
        """Return the part of the rotation in which a VM is favoured."""
        return (
            sum(t.width_us for t in windows.turns if uuid in t.favoured)
            / windows.cycle_us
        )

    def part_of_pauses(self, windows):
        """Return the part of the rotation in which no VM is favoured."""
        return (
            sum(turn.width_us for turn in windows.turns if not turn.favoured)
            / windows.cycle_us
        )
