# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Run the controller on a recorded trace, as the agent does."""

from nova_vhpc.agent.daemon import controller_factory
from nova_vhpc.control import controller, model
from nova_vhpc.control.config import ControlConfig
from nova_vhpc_lab.bench.common import traces
from nova_vhpc_lab.bench.replay import result

PERIOD_US = 100_000
"""Traces have one row per 100 ms."""

CLUSTER = 'trace'

RULES = {'paper': 'paper', 'ours': 'learned'}
"""Values of option ``leave_rule``, by their names on the command line."""


def make_controller(
    rule: str, predictor: str, pinning: str
) -> controller.Controller:
    """Return a controller.

    :param rule: leave rule, a key of :data:`RULES`.
    :param predictor: name of the predictor.
    :param pinning: name of the pinning policy.
    :raises nova_vhpc.agent.errors.ConfigError: if a plugin cannot be loaded.
    """
    config = ControlConfig(leave_rule=RULES[rule])
    return controller.Controller(
        config,
        controller_factory.load_plugin('slice_policy', 'none')(config),
        controller_factory.load_plugin('pinning_policy', pinning)(config),
        controller_factory.load_plugin('predictor', predictor),
    )


def replay(
    trace: traces.GappedTrace,
    rule: str,
    predictor: str,
    pinning: str = 'io_pool',
    cpus: int = 4,
    vcpus: int = 2,
) -> result.Replay:
    """Run all VMs of a trace as one virtual cluster on one host.

    :param rule: leave rule, a key of :data:`RULES`.
    :param predictor: name of the predictor.
    :param pinning: name of the pinning policy.
    :param cpus: number of CPUs of the host, in two sockets.
    :param vcpus: number of vCPUs per VM.
    :raises nova_vhpc.agent.errors.ConfigError: if a plugin cannot be loaded.
    """
    decider = make_controller(rule, predictor, pinning)
    host = tuple(
        model.Cpu(number, socket=2 * number // cpus, llc=2 * number // cpus)
        for number in range(cpus)
    )
    original = model.CpuTune(
        period_us=100_000,
        quota_us=model.UNLIMITED,
        shares=1_024,
        vcpu_pins=(frozenset(range(cpus)),) * vcpus,
    )
    in_force = dict.fromkeys(trace.vms, original)
    plans: list[model.Plan] = []
    writes = 0
    for tick, row in enumerate(trace.rows):
        plan = decider.decide(
            model.HostView(
                tick=tick,
                now_us=tick * PERIOD_US,
                wall_us=tick * PERIOD_US,
                period_us=PERIOD_US,
                cpus=host,
                vms=tuple(
                    model.VmView(
                        uuid=name,
                        vcpus=vcpus,
                        workload=model.Workload.PARALLEL,
                        cluster=CLUSTER,
                        original=original,
                        in_force=in_force[name],
                        sample=model.Sample(io_events=events),
                    )
                    for name, events in zip(trace.vms, row, strict=True)
                ),
            )
        )
        plans.append(plan)
        for name, planned in plan.vms.items():
            if planned.writes is not None:
                writes += 1
                in_force[name] = planned.tune
    return result.summarise(
        rule,
        CLUSTER,
        dict(zip(trace.vms, zip(*trace.rows, strict=True), strict=True)),
        plans,
        writes,
    )
