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

from nova_vhpc.agent.journal import written_values
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.control import model


@dataclasses.dataclass(slots=True, eq=False)
class EventHistory:
    """Tells events of our writes from those of others'.

    :ivar written_shares: every ``cpu_shares`` that we wrote in this run.
    :ivar external_shares: what somebody else wrote by an event, and nobody
        has looked at yet: no window is to write over it.
    :ivar written: every period, quota and pin that we wrote in this run, by
        name, as in :func:`.cputune.names`.
    :ivar last: the last of them, by name; of ``cpu_shares``, too.
    :ivar external: those that somebody else wrote by an event, and nobody has
        looked at yet: a write of ours may have come just after.
    """

    written_shares: set[int] = dataclasses.field(default_factory=set)
    external_shares: int | None = None
    written: set[tuple[str, written_values.Value]] = dataclasses.field(
        default_factory=set
    )
    last: dict[str, written_values.Value] = dataclasses.field(
        default_factory=dict
    )
    external: Mapping[str, written_values.Value] = dataclasses.field(
        default_factory=dict
    )

    def note(self, values: Mapping[str, written_values.Value]) -> None:
        """These are about to be written: their events are ours."""
        self.last |= values
        self.written |= values.items()

    def note_bandwidth(self, tune: model.CpuTune) -> None:
        """The same for period and quota of a cputune."""
        self.note(
            written_values.of_tune(
                model.CpuTune(tune.period_us, tune.quota_us)
            )
        )

    def wrote(self, name: str, value: written_values.Value) -> bool:
        """Whether a period, quota or pin is one that we wrote in this run."""
        return (name, value) in self.written

    def written_over(
        self, now: cputune.Cputune
    ) -> Mapping[str, written_values.Value]:
        """Theirs that a write of ours has come just after, by name.

        What we wrote earlier and is in force is somebody else's choice.

        :param now: what is in force.
        """
        is_now = written_values.values(now)
        return {
            name: value
            for name, value in self.external.items()
            if name in is_now and is_now[name] == self.last.get(name)
        }
