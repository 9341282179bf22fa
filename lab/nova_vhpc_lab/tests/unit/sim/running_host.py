# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Simulated hosts with the real controller, to be looked at while they run."""

from nova_vhpc.control import config as control_config
from nova_vhpc.control import controller
from nova_vhpc.control.gang import policy
from nova_vhpc.control.pinning import balance
from nova_vhpc.control.predictors import last_value
from nova_vhpc_lab.sim import agent, measurement, programs
from nova_vhpc_lab.sim.agenda import Agenda
from nova_vhpc_lab.sim.host_spec import HostSpec, VmSpec

SPIN = programs.Spin(500)


def gangs(number, vcpus, program=SPIN, name='c', **kwargs):
    """Return VMs that opted in and whose vCPUs wait for each other."""
    return [
        VmSpec(
            f'{name}{n}',
            'gang',
            program,
            vcpus,
            True,
            f'{name}{n}',
            **kwargs,
        )
        for n in range(number)
    ]


def hogs(sizes, **kwargs):
    """Return VMs that did not opt in and never sleep."""
    return [
        VmSpec(f'h{n}', 'busy', programs.Run(), vcpus, **kwargs)
        for n, vcpus in enumerate(sizes)
    ]


class RunningHost:
    """A host with the shipped policies, or under stock Linux."""

    def __init__(
        self, cpus, vms, managed=True, seed=1, sockets=1, wake_us=0.0
    ):
        self.spec = HostSpec(
            'test', cpus, tuple(vms), sockets=sockets, wake_us=wake_us
        )
        self.host, self.numbers = measurement.start(self.spec, seed)
        self.agenda = Agenda(self.host)
        config = control_config.ControlConfig()
        self.agent = managed and agent.Agent(
            self.host,
            self.agenda,
            self.spec,
            self.numbers,
            controller.Controller(
                config,
                policy.GangPolicy(config),
                balance.BalancePolicy(config),
                last_value.LastValuePredictor,
            ),
            seed,
        )

    def run(self, warm_up_s, seconds):
        """Run; return progress (opted in) or CPUs (others) by name."""
        self.agenda.run(self.agenda.now_us + round(1e6 * warm_up_s))
        begin = self._received()
        self.agenda.run(self.agenda.now_us + round(1e6 * seconds))
        return {
            name: (received - begin[name]) / (1e6 * seconds)
            for name, received in self._received().items()
            if seconds
        }

    def _received(self):
        received = {}
        for vm in self.spec.vms:
            counters = self.host.counters(self.numbers[vm.name])
            received[vm.name] = (
                counters.progress_us if vm.opted_in else sum(counters.run_us)
            )
        return received

    def received_us(self):
        """Return the CPU time of each VM since its start."""
        return {
            name: sum(self.host.counters(number).run_us)
            for name, number in self.numbers.items()
        }

    def efficiency(self, got):
        """Return the part of all CPU time in which gangs progress."""
        return (
            sum(got[vm.name] * vm.vcpus for vm in self.spec.vms if vm.opted_in)
            / self.spec.cpus
        )

    def others(self, got):
        """Return the CPUs of all VMs that did not opt in."""
        return sum(got[vm.name] for vm in self.spec.vms if not vm.opted_in)
