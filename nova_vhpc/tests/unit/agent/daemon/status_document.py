# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""A status document with one guest, for tests."""

from nova_vhpc.agent.daemon import status
from nova_vhpc.agent.metrics import host_metrics
from nova_vhpc.agent.probes import sampler
from nova_vhpc.agent.tick_result import TickResult
from nova_vhpc.control import model
from nova_vhpc.tests.unit.agent.guests import test_guest
from nova_vhpc.tests.unit.agent.probes import test_sampler


def tick_result(uuid: str) -> TickResult:
    """Return the result of a tick with one guest in the I/O phase."""
    vm = model.VmView(
        uuid, 2, sample=model.Sample(5.0, 6.0, (1.0, 2.0), elapsed_us=1.0)
    )
    plan = model.VmPlan(
        uuid,
        model.CpuTune(5_000, 5_000),
        None,
        5_000,
        model.Phase.IO,
        'because',
    )
    return TickResult(
        model.HostView(1, 0, 100_000, (), (vm,)),
        model.Plan({uuid: plan}),
        123.0,
    )


def agent() -> dict:
    """Return the part of a status document about the agent."""
    return {
        **{key: 1 for key, _, _ in host_metrics.AGENT_COUNTERS},
        **{key: 2 for key, _, _ in host_metrics.AGENT_GAUGES},
    }


def document() -> dict:
    """Return a status document with one guest."""
    guest = test_guest.make()
    guest.reader = sampler.VmReader(
        [test_sampler.Sync(None, test_sampler.READING)], []
    )
    for now_us in (1_000_000, 1_200_000):
        guest.reader.read(now_us, 100_000)
    return {
        'agent': agent(),
        'vms': status.guest_statuses({'u': guest}, tick_result('u')),
    }


def collector() -> host_metrics.HostCollector:
    """Return the metrics of an agent without VMs."""
    return host_metrics.HostCollector(lambda: {'agent': agent()})
