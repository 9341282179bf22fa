# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""``io_pool``: VMs in the I/O phase on CPUs of their own.

I/O-perception paper, section III: computing and I/O VMs run in two
disjoint pools of CPUs, so that I/O is not held up by computing, and
computing is not interrupted as often as I/O has to be.
"""

from nova_vhpc.control import config as control_config
from nova_vhpc.control import model
from nova_vhpc.control.pinning import balance, base, loads, pools, spread


class IoPoolPolicy:
    """Two pools; in each, siblings on different CPUs."""

    uses_phases = True

    def __init__(self, config: control_config.ControlConfig) -> None:
        """Start with nobody placed."""
        self._sizer = pools.PoolSizer(config)
        self._spreader = spread.Spreader(config.rebalance_periods)

    def pin(self, context: base.PinContext) -> base.PinDecision:
        """Pin every VM that may be pinned into its pool.

        Parallel VMs get one CPU per vCPU, others the whole pool.
        """
        view = context.view
        cpus = frozenset(cpu.id for cpu in view.cpus)
        ignored: list[model.Ignored] = []
        movable: list[tuple[model.VmView, frozenset[int]]] = []
        vcpus: dict[model.Phase, list[int]] = {
            model.Phase.IO: [],
            model.Phase.COMPUTING: [],
        }
        for vm in view.vms:
            if not vm.repin:
                continue
            allowed = base.usable_cpus(vm, cpus)
            if not allowed:
                ignored.append(model.Ignored(vm.uuid, base.NO_CPU))
                continue
            movable.append((vm, allowed))
            vcpus[context.phases[vm.uuid]].append(vm.vcpus)
        divided = self._sizer.divide(
            view.cpus,
            vcpus[model.Phase.IO],
            vcpus[model.Phase.COMPUTING],
        )
        if self._sizer.remark:
            ignored.append(model.Ignored('', self._sizer.remark))

        pins: dict[str, base.Pins] = {}
        in_io_pool: set[str] = set()
        requests: list[loads.Request] = []
        in_force: dict[str, base.Pins] = {}
        # Many VMs, few different sets: each is intersected once.
        domains: dict[tuple[model.Phase, frozenset[int]], frozenset[int]] = {}
        for vm, allowed in movable:
            domain = allowed
            if divided is not None:
                phase = context.phases[vm.uuid]
                key = (phase, allowed)
                if key not in domains:
                    domains[key] = allowed & _pool(divided, phase)
                domain = domains[key]
                if not domain:
                    ignored.append(
                        model.Ignored(
                            vm.uuid,
                            f'none of its CPUs is in the {phase} pool; '
                            'not pinned',
                        )
                    )
                    continue
                if phase == model.Phase.IO:
                    in_io_pool.add(vm.uuid)
            if vm.workload == model.Workload.PARALLEL:
                requests.append(balance.request_for(vm, domain))
                if vm.in_force.vcpu_pins is not None:
                    in_force[vm.uuid] = vm.in_force.vcpu_pins
            elif domain != allowed:
                pins[vm.uuid] = (domain,) * vm.vcpus
        pins.update(self._spreader.assign(requests, view.cpus, in_force))
        return base.PinDecision(
            pins=pins,
            in_io_pool=frozenset(in_io_pool),
            pools=divided,
            ignored=tuple(ignored),
        )


def _pool(divided: model.Pools, phase: model.Phase) -> frozenset[int]:
    """CPUs of a VM in a phase."""
    if phase == model.Phase.IO:
        return divided.io
    if divided.lent:
        return divided.io | divided.computing
    return divided.computing
