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

"""Which CPU scheduler a simulated host has, and its settings."""

import dataclasses
import enum

from nova_vhpc.sim.kernel import state


@dataclasses.dataclass(frozen=True, slots=True)
class Linux:
    """EEVDF, as in Linux 6.12 to 6.18."""


@dataclasses.dataclass(frozen=True, slots=True)
class XenCredit:
    """Xen's credit scheduler, with a time slice for each VM.

    :ivar slice_us: time slice of VMs that have none of their own.
    :ivar ratelimit_us: time for which nothing preempts a vCPU, however short
        its slice is; 0 for none.
    :ivar accounting_follows: whether credits are accounted as often as the
        shortest time slice of any VM ends; else as often as ``slice_us``,
        which is what Xen does. It has no time slices of single VMs.
    """

    slice_us: int = 30_000
    ratelimit_us: int = 1_000
    accounting_follows: bool = True


Kernel = Linux | XenCredit

LINUX = Linux()


class CoScheduling(enum.Enum):
    """Whether sibling vCPUs of a VM are made to run at the same time."""

    NONE = state.APART
    RELAXED = state.RELAXED
    """They begin together; the time slice of each ends by itself."""
    STRICT = state.STRICT
    """They begin and end together."""
