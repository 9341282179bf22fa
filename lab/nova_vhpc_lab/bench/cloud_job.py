# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""One simulated cloud, run under each policy in a process of its own."""

import dataclasses

from nova_vhpc.control import config as control_config
from nova_vhpc.control import controller
from nova_vhpc_lab.bench import controller as controller_bench
from nova_vhpc_lab.bench.common import plugins
from nova_vhpc_lab.sim import coscheduler, hosts, kernels, xen_trials
from nova_vhpc_lab.sim.cloud import (
    comparison,
    npc09,
    running,
    scenarios,
    spec,
)

_PLUGINS = {
    'balance': ('none', 'balance'),
    'dss': ('dss', 'none'),
    'vslicer': ('vslicer', 'none'),
    'atc-30ms': ('atc', 'none'),
    'atc-6ms': ('atc', 'none'),
}
"""Slice and pinning policy of those that are not ours."""

SHORT_SLICE_US = 6_000
"""ATC paper, section IV.C: slice of VMs that are not parallel, "ATC(6ms)"."""


@dataclasses.dataclass(frozen=True, slots=True)
class Cloud:
    """One cloud to be run, in a process of its own.

    :ivar name: key of the scenario in the JSON file.
    :ivar policies: names.
    :ivar ours: plugins of the policy of that name.
    """

    name: str
    scenario: str
    kernel: str
    seed: int
    hosts: int
    group_policy: str | None
    policies: tuple[str, ...]
    ours: plugins.PluginNames
    seconds: float
    warm_up_s: float
    skew_us: float
    latency_us: float
    loss: float
    inventory: spec.CloudSpec | None = None
    case: npc09.Case | None = None

    def run(self) -> comparison.SeedFigures:
        """Place the cloud, and run it under each policy."""

        return comparison.compare(
            self._spec(),
            self.seed,
            [_policy(name, self.ours, self.kernel) for name in self.policies],
            running.Conditions(
                self.seconds,
                self.warm_up_s,
                self.skew_us,
                hosts.Network(latency_us=self.latency_us, loss=self.loss),
            ),
        )

    def _spec(self) -> spec.CloudSpec:

        cloud = self._linux_spec()
        if self.kernel == 'linux':
            return cloud
        return dataclasses.replace(
            cloud,
            kernel=kernels.XenCredit(),
            switch_us=xen_trials.SWITCH_US,
            loads=(xen_trials.DOM0,),
        )

    def _linux_spec(self) -> spec.CloudSpec:

        if self.inventory is not None:
            return self.inventory
        if self.case is not None:
            return self.case.spec()
        if self.scenario == 'atc-a':
            programs = sorted(scenarios.NPB)
            program = programs[self.seed % len(programs)]
            return scenarios.atc_a(program, self.hosts)
        make = {
            'atc-b': scenarios.atc_b,
            'atc-mixed': scenarios.atc_mixed,
        }[self.scenario]
        return dataclasses.replace(
            make(self.seed, self.hosts), group_policy=self.group_policy
        )


def _policy(
    name: str, ours: plugins.PluginNames, kernel: str
) -> running.Policy:
    """Return a policy of :data:`POLICIES`."""

    if name in ('stock', 'bound'):
        return running.Policy(name)
    if name == 'ours':
        return running.Policy(
            name, lambda: controller_bench.make(ours), slots=True
        )
    if name == 'cs':
        return running.Policy(name, coscheduling=coscheduler.Settings())
    slices, pinning = _PLUGINS[name]
    names = dataclasses.replace(
        ours, slice_policy=slices, pinning_policy=pinning
    )
    # The paper's algorithms have no guard.
    config = control_config.ControlConfig(guard=False)

    def make() -> controller.Controller:
        return controller_bench.make(names, config)

    return running.Policy(
        name,
        make,
        quota=slices != 'none' and kernel == 'linux',
        all_opt_in=slices != 'none',
        time_slice_us=SHORT_SLICE_US if name == 'atc-6ms' else None,
    )
