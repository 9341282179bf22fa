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

"""Programs that a simulated VM's vCPUs, or threads of the host, run."""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """Never sleeps."""


@dataclasses.dataclass(frozen=True, slots=True)
class Spin:
    """Computes, then spins at a barrier until all siblings have come.

    :ivar work_us: time that each vCPU computes between two barriers.
    """

    work_us: float


@dataclasses.dataclass(frozen=True, slots=True)
class SpinThenBlock:
    """Computes, spins at a barrier for a while, then sleeps.

    :ivar spin_us: longest time that a vCPU spins.
    """

    work_us: float
    spin_us: float


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """Computes, then sleeps at a barrier until all siblings have come."""

    work_us: float


@dataclasses.dataclass(frozen=True, slots=True)
class Sleep:
    """Each vCPU runs, then sleeps, by itself.

    :ivar run_us: CPU time after each wake-up.
    :ivar sleep_us: mean time that it sleeps; random, between half and one and
        a half of it.
    """

    run_us: float
    sleep_us: float


@dataclasses.dataclass(frozen=True, slots=True)
class Serve:
    """Each vCPU serves requests that come at random times.

    :ivar interval_us: mean time between two requests.
    :ivar service_us: mean CPU time of a request.
    """

    interval_us: float = 4_000.0
    service_us: float = 800.0


@dataclasses.dataclass(frozen=True, slots=True)
class Io:
    """Each vCPU computes, then waits for a device.

    :ivar run_us: CPU time between two operations.
    :ivar wait_us: mean time of an operation.
    """

    run_us: float = 150.0
    wait_us: float = 500.0


Program = Run | Spin | SpinThenBlock | Block | Sleep | Serve | Io
