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

"""Build VMs and hosts, and run a gang policy on them."""

from nova_vhpc.control import config as control_config
from nova_vhpc.control import model
from nova_vhpc.control.gang import policy as gang
from nova_vhpc.control.slices import base
from nova_vhpc.tests import base as tests_base

TICK_US = 100_000
CONFIG = control_config.ControlConfig()
V1 = model.ActuatorLimits(min_shares=2, max_shares=262_144)
V2 = model.ActuatorLimits(min_shares=1, max_shares=10_000)
TWO_CPUS = (model.Cpu(0), model.Cpu(1))
APART = (frozenset({0}), frozenset({1}))


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


class GangTestCase(tests_base.TestCase):
    """Gives a policy the same view for four seconds of ticks."""

    def decide(
        self,
        *vms,
        others=(),
        pins=None,
        in_io_pool=(),
        limits=V1,
        cpus=TWO_CPUS,
        ticks=40,
        policy=None,
        config=CONFIG,
        late_us=0.0,
    ):
        """Return the last decision of ``ticks`` equal control periods."""
        policy = policy or gang.GangPolicy(config)
        decision = None
        for tick in range(ticks):
            decision = policy.decide(
                base.SliceContext(
                    view=model.HostView(
                        tick,
                        tick * TICK_US,
                        TICK_US,
                        cpus,
                        vms,
                        limits=limits,
                        others=others,
                        window_late_us=late_us,
                    ),
                    phases={},
                    pins={one.uuid: APART for one in vms}
                    if pins is None
                    else pins,
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
