# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""How a VM's program waits: whether its vCPUs sleep, and whether that costs.

A host sees of a vCPU for how long it ran, and for how long it was runnable
without running. One that is runnable all of the time never sleeps: it computes
or spins. While all vCPUs have a CPU that is nobody's concern. Where they are
held up, siblings spin for each other, and sleeping would let them, and their
neighbours, use that time.

In which moments siblings run together no counter tells. What is known is the
part of the time that gang windows favour the VM; without windows, that they
cannot run together for longer than the one runs that runs least.
"""

from collections.abc import Sequence
from typing import NamedTuple

from nova_vhpc.control.gang import demand
from nova_vhpc.control.model import (
    Paradigm,
    VmView,
    Waiting,
    WaitState,
    Workload,
)

NEVER_SLEEPS = demand.CPU_BOUND
SLEEPS_AGAIN = demand.SPINNING
"""Parts of the time for which a vCPU must be runnable to count as one that
never sleeps, and below which it stops to. One that spins is runnable for 0.99
of it; one that naps after 0.2 ms, for 0.55 to 0.75 (simulated hosts with two
to six such vCPUs per CPU)."""

HELD_UP = 0.10
"""Part of the time for which a vCPU must be runnable without running to count
as held up: siblings spin about as long for it. The host's own threads and the
scheduler's balance take 1 to 5%."""

NO_LONGER_HELD_UP = 0.05
"""A VM that is held up stops to count as that below this part."""

IN_USE = 0.05
"""CPUs that a member of a cluster must use to count as one that waits, and not
as one that is idle."""

GUIDE = 'see "Programs that nap while they wait" in the user guide'


class VcpuLoad(NamedTuple):
    """Parts of the time, 0 to 1, in which a vCPU ran, and was held up."""

    run_part: float
    wait_part: float


def judge(
    loads: Sequence[VcpuLoad], has_peers: bool, before: WaitState | None
) -> Waiting:
    """Return how a VM's program waits.

    :param has_peers: whether its vCPUs wait for other VMs, too.
    :param before: state so far; None for none.
    """
    sleeps = before in (None, WaitState.WAITS)
    least_busy = NEVER_SLEEPS if sleeps else SLEEPS_AGAIN
    busy = [one for one in loads if sum(one) >= least_busy]
    if not busy:
        return Waiting(WaitState.WAITS, len(loads))
    is_held_up = max(one.wait_part for one in busy) >= (
        NO_LONGER_HELD_UP if before is WaitState.HELD_UP else HELD_UP
    )
    # What only one vCPU does is more likely computed than waited for.
    waits_for_others = has_peers or len(busy) > 1
    return Waiting(
        WaitState.HELD_UP
        if is_held_up and waits_for_others
        else WaitState.SPINS,
        len(loads),
        len(busy),
        min(1.0, min(one.run_part for one in busy)),
    )


def judge_all(
    vms: Sequence[VmView],
    tracker: demand.DemandTracker,
    before: dict[str, Waiting],
) -> dict[str, Waiting]:
    """Return how the programs of parallel VMs wait, by uuid.

    VMs of which it is not known are missing.

    :param before: the last result.
    """
    found: dict[str, Waiting] = {}
    sleeping_clusters: set[str | None] = set()
    for vm in vms:
        loads = tracker.loads(vm.uuid)
        if vm.workload != Workload.PARALLEL or not loads:
            continue
        last = before.get(vm.uuid)
        spans_vms = _spans_vms(vm)
        one = judge(
            [VcpuLoad(*load) for load in loads],
            spans_vms,
            None if last is None else last.state,
        )
        if one.state is WaitState.WAITS and vm.original.share is not None:
            # Not all kernels count a vCPU without quota as held up.
            continue
        found[vm.uuid] = one
        if (
            spans_vms
            and one.state is WaitState.WAITS
            and tracker.used_cpus(vm.uuid) >= IN_USE
        ):
            sleeping_clusters.add(vm.cluster)
    for vm in vms:
        if vm.cluster in sleeping_clusters and vm.uuid in found:
            found[vm.uuid] = found[vm.uuid]._replace(peers_wait=_spans_vms(vm))
    return found


def _spans_vms(vm: VmView) -> bool:
    """Return whether a VM's program waits for other VMs of its cluster."""
    return vm.cluster is not None and vm.paradigm != Paradigm.OPENMP


def describe(waiting: Waiting, windows_part: float) -> tuple[str, str]:
    """Return how a program waits, and what to do, as a sentence in two parts.

    What is to be done is harmless also where a program never waits.

    :param windows_part: part of the time that gang windows favour the VM; 0.0
        while none are played.
    """
    if waiting.state is WaitState.WAITS:
        if windows_part > 0:
            return 'sleeps at times', 'it has gang windows all the same'
        return 'waits', 'needs no windows'
    subject, verb = 'never sleeps', 'runs'
    if waiting.busy_vcpus < waiting.vcpus:
        subject, verb = (
            f'{waiting.busy_vcpus} of its {waiting.vcpus} vCPUs never sleep',
            'run',
        )
    if waiting.state is WaitState.SPINS:
        return subject, 'waiting would gain it nothing'
    together = f'at most {waiting.run_part:.0%} of the time'
    if windows_part > 0:
        together = f'{windows_part:.0%} of the time, in gang windows'
    remedy = 'let it wait'
    if waiting.peers_wait:
        remedy += ' as other members of its cluster do'
    return f'{subject}, {verb} together {together}', f'{remedy}, {GUIDE}'
