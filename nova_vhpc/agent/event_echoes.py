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

"""What libvirt's events have to tell of one run of a VM.

They come late, those of our own writes, too; and a write of ours may have come
just after what somebody else wrote.
"""

import dataclasses
from collections.abc import Mapping

from nova_vhpc.agent import cputune
from nova_vhpc.control import model


@dataclasses.dataclass(slots=True, eq=False)
class Echoes:
    """Tells events of our writes from those of others'.

    :ivar shares_ours: every ``cpu_shares`` that we wrote in this run.
    :ivar shares_theirs: what somebody else wrote by an event, and nobody
        has looked at yet: no window is to write over it.
    :ivar bandwidth_ours: every period and quota that we wrote in this run, by
        name.
    :ivar bandwidth_last: the last of them, by name.
    :ivar bandwidth_theirs: those that somebody else wrote by an event, and
        nobody has looked at yet: a write of ours may have come just after.
    """

    shares_ours: set[int] = dataclasses.field(default_factory=set)
    shares_theirs: int | None = None
    bandwidth_ours: set[tuple[str, int]] = dataclasses.field(
        default_factory=set
    )
    bandwidth_last: dict[str, int] = dataclasses.field(default_factory=dict)
    bandwidth_theirs: Mapping[str, int] = dataclasses.field(
        default_factory=dict
    )

    def note_bandwidth(self, tune: model.CpuTune) -> None:
        """Period and quota are about to be written: their events are ours."""
        for name, value in (
            (cputune.PERIOD, tune.period_us),
            (cputune.QUOTA, tune.quota_us),
        ):
            if value is not None:
                self.bandwidth_last[name] = cputune.plain(name, value)
                self.bandwidth_ours.add((name, self.bandwidth_last[name]))

    def wrote(self, name: str, value: int | None) -> bool:
        """Whether a period or quota is one that we wrote in this run."""
        return (
            value is not None
            and (name, cputune.plain(name, value)) in self.bandwidth_ours
        )

    def is_last(self, name: str, value: int | None) -> bool:
        """Whether a period or quota is the last one that we wrote.

        An earlier one that is in force is somebody else's choice.
        """
        return value is not None and (
            cputune.plain(name, value) == self.bandwidth_last.get(name)
        )
